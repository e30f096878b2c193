"""`python nemo_gym_resources.py PORT NAME CLASS`: a resources server that NeMo-Gym brings.

It is served as NeMo-Gym serves it, with its own sessions and error handling, and without the Ray
cluster that `ng_run` starts beside it, which no resources server here asks for anything.
"""

import sys
from importlib import import_module
from typing import Any

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf


def served(port: int, name: str, kind: str) -> Any:
    made = getattr(import_module(f"resources_servers.{name}.app"), kind)
    where = {"host": "127.0.0.1", "port": port}
    server = made(
        config=made.model_fields["config"].annotation(**where, entrypoint="app.py", name=name),
        server_client=ServerClient(
            head_server_config=BaseServerConfig(**where), global_config_dict=OmegaConf.create({})
        ),
    )
    app = server.setup_webserver()
    server.setup_liveness(app)
    server.setup_exception_middleware(app)
    return app


if __name__ == "__main__":
    port, name, kind = sys.argv[1:]
    app = served(int(port), name, kind)
    app.get("/health")(lambda: {})
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
