"""pandas is loaded by whoever uses it, and pyarrow then knows it; the driver and its slots do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # an interpreter starts for each

_START = "import sys, pyarrow as pa; from penstock.deferred_pandas import defer_pandas; defer_pandas(); defer_pandas()\n"
_DRIVER = "import penstock.admin.server, penstock.runtime.application, penstock.engines.forked.process; "


@pytest.mark.parametrize(
    "program",
    [
        _DRIVER + "assert 'pandas' not in sys.modules, 'at import'; assert 'pyspark' not in sys.modules",
        "pa.array([1]); pa.table({'a': ['x']}); assert 'pandas' not in sys.modules",
        "import pandas as pd; assert pa.array(pd.Series([1.0, float('nan')])).null_count == 1",
        "assert pa.table({'a': [1]}).to_pandas()['a'].sum() == 1",
        "from importlib.util import find_spec; find_spec('pandas'); import pandas; assert pa.lib._pandas_api.have_pandas",
        "import importlib.resources, pandas; assert importlib.resources.files('pandas').joinpath('__init__.py').is_file()",
    ],
)
def test_pandas_is_loaded_on_demand(program: str) -> None:
    found = subprocess.run([sys.executable, "-c", _START + program], check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_pandas_that_is_already_loaded_stays_known() -> None:
    program = "import pandas as pd\n" + _START + "assert pa.array(pd.Series([float('nan')])).null_count == 1"
    subprocess.run([sys.executable, "-c", program], check=True)
