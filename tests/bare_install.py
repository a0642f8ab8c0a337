"""Build the wheel, install it alone in a fresh environment, and do a tiny job there (`make wheel`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROJECT = Path(__file__).parent.parent
JOB = """
import subprocess, sys
from pathlib import Path
import convgrad, numpy as np
assert not {"click", "rich", "h5py"} & set(sys.modules), "the library alone pulls in the command line"
np.save("x.npy", np.ones((1, 2, 2, 1), np.float32))
np.save("w.npy", np.ones((2, 2, 1, 1), np.float32))
command = Path(sys.executable).with_name("convgrad")
subprocess.run([command, "transpose", "x.npy", "w.npy", "-o", "y.npy"], check=True)
assert np.load("y.npy")[0, :, :, 0].tolist() == [[1, 2], [2, 4]]
print("works alone:", convgrad.__version__, convgrad.__file__)
"""


def main() -> None:
    """Raise CalledProcessError if any step fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, PROJECT], check=True)
        (wheel,) = folder.glob("convgrad-*.whl")
        print("built", wheel.name)
        venv.create(folder / "fresh", with_pip=True)
        python = str(folder / "fresh" / "bin" / "python")
        install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", wheel]
        subprocess.run(install, check=True)
        subprocess.run([python, "-c", JOB], check=True, cwd=folder)


if __name__ == "__main__":
    main()
