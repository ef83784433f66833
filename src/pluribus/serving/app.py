"""The routes of a server.

GET  /                                a page to try one input
POST /predict                         plain JSON rows
GET  /v2, /v2/health/live|ready       Open Inference Protocol
GET  /v2/models/{m}[/ready]
POST /v2/models/{m}/infer
GET  /metrics                         Prometheus
GET  /drift                           the drift monitor
GET  /description                     the description of the export
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pluribus.serving.page import SECURITY, page
from pluribus.serving.protocol import HEADER, MODEL_VERSION, model_metadata, server_metadata
from pluribus.serving.refusal import BAD_REQUEST, BUSY, FAILED, NOT_FOUND, Refusal
from pluribus.serving.service import Service
from pluribus.serving.statistics import CONTENT_TYPE

JSON = "application/json"
Answer = Callable[[bytes, Request], Awaitable[Response]]


def create_app(service: Service, stopped: Callable[[Service], None] | None = None) -> FastAPI:
    """Return the application.

    Args:
        service: The served ensemble.
        stopped: Called after the last request was finished.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        await service.batcher.drain()
        if stopped is not None:
            stopped(service)

    # The pages of FastAPI load scripts from other hosts.
    app = FastAPI(title="Pluribus", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, _error)
    app.add_exception_handler(Exception, _failed)
    _add_predictions(app, service)
    _add_protocol(app, service)
    _add_reports(app, service)
    return app


def _add_predictions(app: FastAPI, service: Service) -> None:
    async def predict(body: bytes, request: Request) -> Response:
        return Response(await service.predict(body), media_type=JSON)

    async def infer(body: bytes, request: Request) -> Response:
        _check_model(service, request)
        answer, length = await service.infer(body, request.headers.get(HEADER))
        if length is None:
            return Response(answer, media_type=JSON)
        return Response(answer, media_type="application/octet-stream", headers={HEADER: str(length)})

    @app.post("/predict")
    async def post_predict(request: Request) -> Response:
        return await _handled(service, "predict", request, predict)

    @app.post("/v2/models/{model}/infer")
    @app.post("/v2/models/{model}/versions/{version}/infer")
    async def post_infer(request: Request) -> Response:
        return await _handled(service, "infer", request, infer)


def _add_protocol(app: FastAPI, service: Service) -> None:
    @app.get("/v2")
    async def get_server() -> dict[str, Any]:
        return server_metadata()

    @app.get("/v2/health/live")
    async def get_live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready")
    async def get_ready() -> Response:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else BUSY)

    @app.get("/v2/models/{model}")
    @app.get("/v2/models/{model}/versions/{version}")
    async def get_model(request: Request) -> Response:
        try:
            _check_model(service, request)
        except Refusal as refusal:
            return _refused(refusal)
        return JSONResponse(model_metadata(service.name, service.exported))

    @app.get("/v2/models/{model}/ready")
    @app.get("/v2/models/{model}/versions/{version}/ready")
    async def get_model_ready(request: Request) -> Response:
        try:
            _check_model(service, request)
        except Refusal as refusal:
            return _refused(refusal)
        body = {"name": service.name, "ready": service.ready}
        return JSONResponse(body, 200 if service.ready else BUSY)


def _add_reports(app: FastAPI, service: Service) -> None:
    text = page(service)
    # The scores of thousands of validation samples are of use to the monitor alone.
    hidden = ("reference_scores", "weights")
    description = {key: value for key, value in service.exported.description.items() if key not in hidden}

    @app.get("/")
    async def get_page() -> Response:
        return HTMLResponse(text, headers=SECURITY)

    @app.get("/metrics")
    async def get_metrics() -> Response:
        waiting = len(service.batcher.jobs)
        return Response(
            service.statistics.text(waiting, service.inside), headers={"Content-Type": CONTENT_TYPE}
        )

    @app.get("/drift")
    async def get_drift() -> dict[str, Any]:
        return service.drift()

    @app.get("/description")
    async def get_description() -> dict[str, Any]:
        return description


async def _handled(service: Service, route: str, request: Request, answer: Answer) -> Response:
    """Return the response to a request for predictions, and count it."""
    started = time.monotonic()
    try:
        with service.admitted():
            body = await service.read_body(request.headers, request.stream())
            response = await answer(body, request)
    except Refusal as refusal:
        response = _refused(refusal)
    except ClientDisconnect:
        response = Response(status_code=BAD_REQUEST)
    service.statistics.answered(route, response.status_code, time.monotonic() - started)
    return response


def _check_model(service: Service, request: Request) -> None:
    """Raise `Refusal` for another model or version than the one that is served."""
    model = request.path_params["model"]
    version = request.path_params.get("version", MODEL_VERSION)
    if model != service.name or version != MODEL_VERSION:
        raise Refusal(
            NOT_FOUND,
            f"the model must be {service.name!r}, version {MODEL_VERSION}, got {model[:100]!r}, "
            f"version {version[:100]!r}.",
        )


def _refused(refusal: Refusal) -> Response:
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    return JSONResponse({"error": refusal.reason}, refusal.status, headers)


async def _failed(request: Request, error: Exception) -> Response:
    """Return an error of this library in the form of the protocol; uvicorn logs its traceback."""
    return JSONResponse({"error": "the server failed on this request."}, FAILED)


async def _error(request: Request, error: Exception) -> Response:
    """Return errors of the framework, as unknown paths, in the form of the protocol."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code)
