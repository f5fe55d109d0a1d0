"""Settings: the only reader of the environment and of configuration files.

| variable          | meaning                                        | default                      |
| ----------------- | ---------------------------------------------- | ---------------------------- |
| MUSTER_URL        | where the server answers                       | http://127.0.0.1:8642        |
| MUSTER_TOKEN      | the token to send to the server                | none                         |
| MUSTER_TOKEN_FILE | the file that holds the token                  | `token` in the data folder   |
| MUSTER_DB         | the event log                                  | `muster.db` in that folder   |
| MUSTER_NAMESPACE  | the namespace of jobs that are named without   | default                      |
| KUBECONFIG        | how to reach a Kubernetes cluster              | ~/.kube/config, or the pod's |
| MUSTER_DEBUG      | when set, a bug shows its stack trace          | not set                      |
| MUSTER_PROMETHEUS | the Prometheus that has the GPUs' counters     | none                         |
| MUSTER_PROMETHEUS_TOKEN | the token to send to it                  | none                         |
| XDG_DATA_HOME     | the folder above the data folder               | ~/.local/share               |
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cli.errors import WRONG_USAGE, CliError

DEFAULT_PORT = 8642
DEFAULT_HOST = "127.0.0.1"
TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Settings:
    url: str
    # Explicitly given; `token_for` also reads the token file.
    token: str
    token_file: Path
    # The folder of this user's logs and tokens.
    data: Path
    db: str
    namespace: str
    debug: bool
    # Path of a kubeconfig; empty where there is none, as inside a pod.
    kubeconfig: str
    # The URL of a Prometheus, and the token to send to it.
    prometheus: str = ""
    prometheus_token: str = ""


def read_settings() -> Settings:
    """Read the settings from the current environment."""
    env = os.environ
    home = Path(env.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    data = home / "muster"
    usual = Path.home() / ".kube" / "config"
    return Settings(
        url=env.get("MUSTER_URL") or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}",
        token=env.get("MUSTER_TOKEN", "").strip(),
        token_file=Path(env.get("MUSTER_TOKEN_FILE") or data / "token"),
        data=data,
        db=env.get("MUSTER_DB") or str(data / "muster.db"),
        namespace=env.get("MUSTER_NAMESPACE") or "default",
        debug=bool(env.get("MUSTER_DEBUG")),
        kubeconfig=env.get("KUBECONFIG") or (str(usual) if usual.exists() else ""),
        prometheus=env.get("MUSTER_PROMETHEUS", ""),
        prometheus_token=env.get("MUSTER_PROMETHEUS_TOKEN", "").strip(),
    )


# ---------------------------------------------------------------- tokens


def token_for(settings: Settings, url: str) -> tuple[str, str]:
    """Return the token to send to the server at `url`, and one to send only if it asks for one.

    The token file belongs to a server on this machine, so its token is sent to no other server,
    unless the file was named explicitly.
    """
    if settings.token:
        return settings.token, ""
    # Imported here because it imports the HTTP library, and every command reads settings.
    from api.access import is_loopback

    if "MUSTER_TOKEN_FILE" in os.environ:
        return read_token(settings.token_file, must_exist=True), ""
    if is_loopback(urlsplit(url).hostname or ""):
        return "", read_token(settings.token_file, must_exist=False)
    return "", ""


def read_token(path: Path, *, must_exist: bool) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except FileNotFoundError:
        if not must_exist:
            return ""
        raise CliError(f"there is no token file {path}", exit_code=WRONG_USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"the token file {path} cannot be read: {reason(error)}") from None
    if must_exist and not token:
        raise CliError(f"the token file {path} is empty", exit_code=WRONG_USAGE)
    return token


def make_token(path: Path) -> str:
    """Return the token in the file; if there is none, create one that only this user can read."""
    token = read_token(path, must_exist=False)
    if token:
        return token
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Created with its final permissions, so that it is never readable for others.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o600)
            file.write(token + "\n")
    except OSError as error:
        raise CliError(f"the token file {path} cannot be written: {reason(error)}") from None
    return token


def reason(error: Exception) -> str:
    """Return the system's message, without the errno and the path, which the caller names."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
