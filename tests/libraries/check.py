"""Checks installed libraries for torch with the programs of library_checks/.

    check.py [NAME ...] [--device cpu npu] [--markdown docs/libraries.md]
    check.py --torch [NAME ...]

The first form runs the programs on mindtorch and prints a line for each library and device. The
second runs them with real PyTorch and writes its figures into library_checks/figures.json, in an
environment with PyTorch and the libraries. Without names, all installed libraries are checked.
mindtorch is the checkout's.
"""
import argparse
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="libraries to check (default: those that are installed)")
    parser.add_argument("--device", nargs="+", choices=("cpu", "npu"), default=["cpu"], help="the devices to run on")
    parser.add_argument("--markdown", metavar="FILE", help="write the results into a table (docs/libraries.md); other cells are preserved")
    parser.add_argument("--torch", action="store_true", help="write PyTorch's figures instead")
    args = parser.parse_args()
    from library_checks import reference, report
    return reference.write(args.names) if args.torch else report.report(args.names, args.markdown, args.device)


if __name__ == "__main__":
    sys.exit(main())
