"""bash itself is the oracle: every script below is run by bash with stand-ins for the launchers, and memlint must have seen
the same commands with the same words and environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from memlint.read.shell import Lines, evaluate

PROGRAMS = ("python", "torchrun", "accelerate", "swift")
STAND_IN = """#!/bin/bash
{ printf '%s\\n' "${0##*/}" "$@"; printf 'BS_ENV=%s\\n' "${BS_ENV-unset}"; printf -- '---\\n'; } >> "$RECORD"
"""

SCRIPTS = {
    "continuation": "python train.py \\\n  --bs 4 \\\n  --gc\n",
    "comment in an array": 'A=(\n  --model x  # the model\n  # --off 1\n  --seq 10\n)\npython t.py "${A[@]}"\n',
    "comment ends a continuation": "python t.py --a 1 \\\n  # --b 2 \\\n  --c 3 2>/dev/null\n",
    "quotes": "python t.py --a 'one two' --b \"x $((1+1)) 'y'\" --c=a\\ b \"\" ''\n",
    "escapes in quotes": 'python t.py "a\\"b" "\\$HOME" \'a\\b\' "back\\\\slash" a\\"b\n',
    "variables": 'N=2\nM="a b"\npython t.py $N "$M" $M pre${N}post\n',
    "defaults": 'X=\npython t.py ${X:-1} ${X-2} ${Y:-3} ${Y-4} "${Z:-a b}" ${N:+no} ${X:+no} end\n',
    "assigned default": ": ${NP:=2}\nBS=${BS:-4}\npython t.py $NP $BS\n",
    "arithmetic": "A=16; B=4\npython t.py $((A / B)) $((A*B-1)) $(( (A + B) * 2 )) $((A % 5)) $((-7 / 2)) $((A > B ? 8 : 9))\n",
    "arithmetic with defaults": "python t.py $(( ${A:-32} / ${B:-4} )) $((2**10)) $((1 && 0)) $((3 == 3))\n",
    "expr": "n=2\npython t.py $(expr 16 / $n) `expr 3 + 4`\n",
    "arrays": 'A=(a "b c" d)\nA+=(e)\npython t.py "${A[@]}" ${#A[@]} "${A[1]}" ${A[0]} ${A[@]}\n',
    "array slots": 'A=()\nA[0]=x\nA[1]="y z"\npython t.py "${A[@]}" "${#A[@]}"\n',
    "string of flags": 'ARGS="--bs 4 --gc"\nARGS="$ARGS --seq 10"\nARGS+=" --x"\npython t.py $ARGS\n',
    "eval": 'N=3\ncmd="python t.py --bs $N --name \\"a b\\""\neval $cmd\n',
    "eval with quotes": "run='torchrun --nproc_per_node=2 t.py --a $A'\nA=5\neval \"${run}\"\n",
    "bash -c": 'X=1\nexport Y=2\nbash -c "python t.py --x $X --y \\$Y"\n',
    "bash -c with single quotes": "export Y=7\nbash -c 'python t.py --y $Y'\n",
    "if equal": 'A=1\nif [ "$A" == "1" ]; then B=yes; else B=no; fi\npython t.py $B\n',
    "if numeric": "N=8\nif [ $N -gt 4 ]; then B=big; elif [ $N -gt 2 ]; then B=mid; else B=small; fi\npython t.py $B\n",
    "if double bracket": 'M=llama-7b\nif [[ $M == llama* && -n "$M" ]]; then B=l; fi\npython t.py $B\n',
    "if regex": 'M=llama-70b\nif [[ "$M" =~ 70b ]]; then B=big; else B=small; fi\npython t.py $B\n',
    "if arithmetic": "N=3\nif (( N > 2 )); then B=a; else B=b; fi\npython t.py $B\n",
    "short circuit": 'A=1\n[ "$A" = 1 ] && B=and\n[ "$A" = 2 ] || C=or\n[ "$A" = 2 ] && D=no || D=other\npython t.py $B $C $D\n',
    "case": 'S=13b\ncase "$S" in 7b) B=4;; 13b|14b) B=2;; *) B=1;; esac\npython t.py $B\n',
    "for": "for b in 1 2 4; do python t.py --bs $b; done\n",
    "for braces": "for i in {1..3}; do python t.py $i; done\npython t.py x{a,b}y\n",
    "for seq": "for i in $(seq 2 3); do python t.py $i; done\n",
    "loop with break": "for i in 1 2 3; do [ $i = 2 ] && break; python t.py $i; done\npython done.py\n",
    "function": 'run() { local n=$1; shift; python t.py --n $n "$@"; }\nrun 3 --a "b c"\nrun 4\n',
    "function return": "f() { return 0; python no.py; }\nf\npython yes.py\n",
    "exit": "python a.py\nexit 0\npython b.py\n",
    "subshell": "A=1\n(A=2; python t.py $A)\npython t.py $A\n",
    "prefix": "BS_ENV=4 python t.py\npython t.py\nexport BS_ENV=5\npython t.py\n",
    "prefix is not seen by the words": "A=1\nA=2 python t.py $A\n",
    "export later": "BS_ENV=1\npython a.py\nexport BS_ENV\npython b.py\n",
    "heredoc variable": 'N=2\nread -r -d "" CMD <<EOF\nt.py --n $N\n  --flag\nEOF\npython $CMD\n',
    "heredoc to variable": "CMD=$(cat <<EOF\nt.py --bs 4\nEOF\n)\npython $CMD\n",
    "quoted heredoc": "CMD=$(cat <<'EOF'\n--a $N\nEOF\n)\npython \"$CMD\"\n",
    "here string": 'read -r A B <<< "x y"\nread -r C <<< "one"\npython t.py $C\n',
    "count devices": 'D=0,1,2,3\nN=$(echo $D | tr "," "\\n" | wc -l)\nM=$(echo $D | awk -F, "{print NF}")\npython t.py $N $M\n',
    "cut": 'V=a:b:c\npython t.py $(echo $V | cut -d: -f2) $(echo "$V" | cut -d ":" -f 3)\n',
    "trim": "F=cfg/train.yaml\npython t.py ${F%.yaml} ${F##*/} ${F#*/} ${F/train/test} ${#F} ${F:0:3}\n",
    "case change": "A=Llama\npython t.py ${A,,} ${A^^}\n",
    "basename": "F=cfg/train.yaml\npython t.py $(basename $F) $(basename $F .yaml) $(dirname $F)\n",
    "indirect": "A=B\nB=7\npython t.py ${!A}\n",
    "set positional": 'set -- a "b c"\npython t.py "$2" $# "$@"\nshift\npython t.py "$1"\n',
    "redirections": "python t.py --a 1 > out.txt 2>&1\npython t.py 2>> err.txt --b 2 &> all.txt\n",
    "background and pipes": "python a.py &\nwait\npython b.py | cat\n! python c.py\n",
    "semicolons and groups": "{ python a.py; python b.py; }; python c.py && python d.py\n",
    "while false": "while false; do python no.py; done\nuntil true; do python no.py; done\npython yes.py\n",
    "unset": "A=1\nunset A\npython t.py ${A:-gone}\n",
    "tabs in heredoc": "CMD=$(cat <<-EOF\n\t--a 1\n\tEOF\n)\npython $CMD\n",
    "comment signs": "python t.py --a x#y '#z' \"#w\" # end\n",
    "ansi quotes": "python t.py $'a' --b\n",
    "exec": "exec python t.py --last\n",
    "declare": "declare -a A=(1 2)\ndeclare N=5\nreadonly M=6\npython t.py ${A[1]} $N $M\n",
    "echo in substitution": 'N=$(echo "8")\nM=`echo $N`\npython t.py $N $M\n',
    "printf": 'python t.py $(printf "%s" 12)\n',
    "nested substitution": "A=cfg/x/y.yaml\npython t.py $(basename $(dirname $A))\n",
    "multi-line condition": 'A=1\nif [ "$A" = "1" ] \\\n   && [ -n "$A" ]; then\n  python t.py ok\nfi\n',
}


def by_bash(script: str, folder: Path) -> list[tuple[list[str], str]]:
    """The commands that bash ran: words and BS_ENV."""
    for name in PROGRAMS:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    record = folder / "record"
    record.write_text("")
    (folder / "script.sh").write_text(script)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "RECORD": str(record)}
    subprocess.run(["bash", "script.sh"], cwd=folder, env=env, check=False, timeout=20, stderr=subprocess.DEVNULL)
    found = []
    for block in record.read_text().split("---\n")[:-1]:
        *words, environment = block.splitlines()
        found.append((words, environment.partition("=")[2]))
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_sees_what_bash_runs(name: str, tmp_path: Path) -> None:
    expected = by_bash(SCRIPTS[name], tmp_path)
    assert expected, "the script runs nothing"
    script = evaluate(Lines("script.sh", SCRIPTS[name]), path="script.sh")
    seen = [
        ([str(word.value) for word in found.words], str(found.env["BS_ENV"].value) if "BS_ENV" in found.env else "unset")
        for found in script.invocations
        if found.words[0].value in (*PROGRAMS, "exec")
    ]
    seen = [(words[1:] if words[0] == "exec" else words, environment) for words, environment in seen]
    assert seen == expected
