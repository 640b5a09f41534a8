from absl import app, flags

RESULT = {}
FLAGS = flags.FLAGS
flags.DEFINE_string("model", "gpt2", "the model", short_name="m")
_BATCH = flags.DEFINE_integer("bs", 8, "batch", lower_bound=1)
flags.DEFINE_bool("bf16", False, "")
flags.DEFINE_boolean("gc", True, "")
flags.DEFINE_enum("size", "s", ["s", "l"], "")
flags.DEFINE_list("targets", ["q_proj"], "")
flags.DEFINE_multi_string("tag", None, "")


def main(argv):
    del argv
    RESULT.update(model=FLAGS.model, bs=_BATCH.value, bf16=FLAGS.bf16, gc=FLAGS.gc, size=FLAGS.size, targets=FLAGS.targets,
                  tag=FLAGS.tag)  # fmt: skip


if __name__ == "__main__":
    app.run(main)
