from absl import app, flags

RESULT = {}
FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 8, "batch")
flags.DEFINE_bool("bf16", False, "")
flags.DEFINE_float("lr", 1e-3, "")
_MODEL = flags.DEFINE_string("model", "gpt2", "")
flags.DEFINE_enum("optim", "sgd", ["sgd", "adam"], "")


def main(argv):
    RESULT.update(bs=FLAGS.batch_size, bf16=FLAGS.bf16, lr=FLAGS.lr, model=_MODEL.value, optim=FLAGS.optim)


if __name__ == "__main__":
    app.run(main)
