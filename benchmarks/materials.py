"""Fetch the materials of the speed benchmarks: two trees of code, and the other linters.

    python benchmarks/materials.py FOLDER

Makes FOLDER/A (pytorch/examples at a pinned commit), FOLDER/B (the packages of packages.txt,
unpacked, about two million lines), and virtual environments with the linters of linters.txt and
torchfix.txt, apart from each other since flake8 would run the torchfix plugin too. Nothing of it is
imported or run here. Existing materials are kept.
"""

import argparse
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = "https://github.com/pytorch/examples"
COMMIT = "77f55b912142e11fcfdf5b530231fb9c52f181e8"


def examples(folder: Path) -> None:
    """Check out pytorch/examples at the pinned commit."""
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", EXAMPLES, partial], check=True)
    subprocess.run(["git", "-C", partial, "checkout", "--quiet", COMMIT], check=True)
    partial.rename(folder)


def packages(folder: Path) -> None:
    """Download the wheels of the pinned packages, which hold the sources, and unpack each."""
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    wheels = partial / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    only = ["--only-binary=:all:", f"--requirement={HERE / 'packages.txt'}", f"--dest={wheels}"]
    subprocess.run([*pip, *only], check=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial / "-".join(wheel.name.split("-")[:2]))
    shutil.rmtree(wheels)
    partial.rename(folder)


def environment(folder: Path, requirements: Path) -> None:
    """Create a virtual environment with the packages listed in a file."""
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", str(requirements)], check=True)
    (folder / "complete").touch()


def main() -> None:
    """Create what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to put it")
    folder: Path = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "A").exists():
        examples(folder / "A")
    if not (folder / "B").exists():
        packages(folder / "B")
    for name in ("linters", "torchfix"):
        if not (folder / name / "complete").exists():
            environment(folder / name, HERE / f"{name}.txt")


if __name__ == "__main__":
    main()
