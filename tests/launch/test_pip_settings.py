"""Where pip would look is where uv looks."""

import os
import subprocess
import sys
from pathlib import Path

from launch.pip_settings import uv_variables

SCRIPT = Path(__file__).parents[2] / "launch" / "pip_settings.py"


def test_each_setting_has_its_variable() -> None:
    listing = """
global.cert='/etc/mirror.pem'
global.extra-index-url='https://a/simple\\nhttps://b/simple'
global.find-links='/wheels /more-wheels'
global.index-url='https://mirror/simple'
global.timeout='60'
global.trusted-host='mirror'
"""
    assert uv_variables(listing.strip()) == {
        "SSL_CERT_FILE": "/etc/mirror.pem",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": "/wheels,/more-wheels",
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INSECURE_HOST": "mirror",
    }


def test_the_setting_nearest_to_an_installation_goes_first() -> None:
    listing = """
:env:.index-url='https://variable'
download.index-url='https://download'
global.index-url='https://file'
install.index-url='https://install'
install.no-index='1'
"""
    variables = uv_variables(listing.strip())
    assert variables == {"UV_DEFAULT_INDEX": "https://variable", "UV_NO_INDEX": "1"}
    assert uv_variables("global.colour='red'") == {}


def said(tmp_path: Path, **variables: str) -> list[str]:
    """What the script says where pip has one configuration file and these variables."""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror/it's here\n")
    usual = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    environment = usual | {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")} | variables
    script = subprocess.run(
        [sys.executable, SCRIPT], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return script.stdout.splitlines()


def test_files_and_variables_of_pip_are_read_and_shells_may_read_the_answer(
    tmp_path: Path,
) -> None:
    assert "export UV_DEFAULT_INDEX='https://other'" not in said(tmp_path)
    assert "export UV_DEFAULT_INDEX=https://other" in said(tmp_path, PIP_INDEX_URL="https://other")


def test_what_uv_is_told_itself_stays(tmp_path: Path) -> None:
    told = said(tmp_path, UV_DEFAULT_INDEX="https://told")
    assert not [line for line in told if "UV_DEFAULT_INDEX" in line]
