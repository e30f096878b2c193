"""`python nemo_gym_head.py PORT CONFIG`: NeMo-Gym's head server, with a configuration in YAML.

It tells collectors where the agent servers of the configuration are, and starts none of them.
"""

import sys
from pathlib import Path

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict
from nemo_gym.server_utils import HeadServer
from omegaconf import OmegaConf

if __name__ == "__main__":
    port, config = sys.argv[1:]
    where = {"host": "127.0.0.1", "port": int(port)}
    given = {"config_paths": [config], "head_server": where}
    get_global_config_dict(
        GlobalConfigDictParserConfig(
            dotenv_path=Path(config).with_name("none.yaml"),
            initial_global_config_dict=OmegaConf.create(given),
            skip_load_from_cli=True,
        )
    )
    app = HeadServer(config=BaseServerConfig(**where)).setup_webserver()
    app.get("/health")(lambda: {})
    uvicorn.run(app, **where, log_level="warning")
