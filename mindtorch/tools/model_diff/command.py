"""``python -m mindtorch diff script.py:build_model``: compares a model under mindtorch and under
PyTorch, or on two devices, layer by layer.

Each side runs in its own process, with the same weights, inputs and seed. The report names the
first layer that differs, and says whether its inputs differed already. Exit status: 0 they agree, 1
they differ, 2 they cannot be compared.
"""
import sys

from mindtorch.tools.model_diff.compare import CompareError, compare_layers


def configure(parser):
    """Declares the arguments of the command."""
    parser.add_argument("target", metavar="SCRIPT.py:BUILDER", help="a function that returns the model (or the model "
                        "and its inputs)")
    parser.add_argument("--sides", default="torch,cpu", metavar="A,B", help="the two sides: torch, cpu or npu, each with an optional dtype; "
                        "torch,npu or npu:float32,npu:bfloat16. B is compared with A (default: torch,cpu)")
    parser.add_argument("--input", metavar="FILE.npz", help="the inputs; arrays named target... are passed to the loss")
    parser.add_argument("--shape", action="append", default=[], metavar="8,3,32,32",
                        help="instead: shape of a random input (repeatable); 8,16:int64:100 means integers below 100")
    parser.add_argument("--state", metavar="FILE.pth", help="weights to load first, written by real torch")
    parser.add_argument("--loss", metavar="NAME", help="a function of the script: loss(output, *targets)")
    parser.add_argument("--steps", default="0", metavar="N", help="optimizer steps to compare as well: a count, or a list such as 0,10,100-110")
    parser.add_argument("--statistics", action="store_true", help="store statistics of tensors instead of values (for models of gigabytes)")
    parser.add_argument("--layers", default=(), metavar="NAMES", help="record only modules with these names, such as 'encoder.*,head'")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="... and only every n-th call of them")
    parser.add_argument("--optimizer", default="sgd", metavar="NAME",
                        help="sgd, adam, adamw, or a function of the script: NAME(model)")
    parser.add_argument("--fault", metavar="NAME", help="a function of the script, NAME(model), called on the second side only")
    parser.add_argument("--dropout", choices=("off", "seeded"), default="off")
    parser.add_argument("--ops", action="store_true", help="also record functions called between the modules")
    parser.add_argument("--no-grads", action="store_true", help="forward only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="also show containers, and values that agree")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON (- for standard output)")
    parser.add_argument("--html", metavar="FILE", help="write the report as one HTML page")
    parser.add_argument("--standin", nargs="?", const="cpu", choices=("cpu", "torch"), help="run an npu side on the CANN simulator, with its launches "
                        "computed by mindtorch's cpu device (default) or real torch; show the launches of the first differing layer")
    parser.add_argument("--kernels", action="append", default=[], metavar="FILE", help="Python file executed over the simulator's kernel table")
    parser.add_argument("--before", metavar="FILE.py", help="executed first in the process of an npu side, before MindSpore's target is set")
    parser.add_argument("--torch-python", metavar="PYTHON", help="the interpreter that has real torch")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS")


def _show(c, everything):
    if sys.stdout.isatty():
        from mindtorch.tools.model_diff import report
        try:
            return report.draw(c, everything)
        except ImportError:         # Rich is not installed
            pass
    return print(c.table(everything, color=sys.stdout.isatty()))


def main(args):
    """Runs the comparison and prints the report; returns the exit status."""
    try:
        c = compare_layers(args.target, inputs=args.input, shapes=args.shape, state=args.state, loss=args.loss,
                           steps=args.steps, optimizer=args.optimizer, fault=args.fault, dropout=args.dropout,
                           ops=args.ops, grads=not args.no_grads, seed=args.seed, torch_python=args.torch_python,
                           timeout=args.timeout, sides=args.sides, before=args.before, standin=args.standin,
                           kernels=args.kernels, statistics=args.statistics, layers=args.layers, every=args.every)
    except (CompareError, ValueError) as e:
        print(f"python -m mindtorch diff: {e}", file=sys.stderr)
        return 2
    if args.json == "-":
        import json
        print(json.dumps(c.as_dict(), indent=1))
    else:
        _show(c, args.all)
    for path in (args.json, args.html):
        if path and path != "-":
            c.save(path)
            print(f"written: {path}", file=sys.stderr)
    return 0 if c.ok else 1
