"""The episodes as a resources server of NeMo-Gym: a tool, and the verifier of the answer."""

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel

from benchmarks.peers.entrants import sums


class AddRequest(BaseModel):
    a: int
    b: int


class SumsVerifyRequest(BaseVerifyRequest):
    question: int


class SumsResourcesServer(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        return app

    async def add(self, body: AddRequest) -> int:
        return sums.add(body.a, body.b)

    async def verify(self, body: SumsVerifyRequest) -> BaseVerifyResponse:
        last = body.response.output[-1]
        said = "".join(part.text for part in last.content) if last.type == "message" else ""
        reward = sums.reward(body.question, said)
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    SumsResourcesServer.run_webserver()
