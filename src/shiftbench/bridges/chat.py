"""Vision-language models behind an OpenAI-compatible endpoint, with a closed list of answers.

The model gets one image at a time with the names of the classes, and has to answer with one of them. Any other answer,
and a refusal, counts as wrong. The answers are not tied to weights: the server may change them under the same name.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from shiftbench import LabelSpace
from shiftbench.bridges.closed_answers import QUESTION, check_question, data_url, named_class, question_text
from shiftbench.bridges.json_server import (
    JsonServer,
    RefusedRequestError,
    address_options,
    check_address,
    stated_timeout,
)
from shiftbench.classifiers import Options, Preprocessing
from shiftbench.errors import ClassifierError
from shiftbench.extend.classifiers import BatchedClassifier, known_inputs, network_fingerprint, settle
from shiftbench.extend.errors import argument
from shiftbench.extend.io import digest
from shiftbench.extend.types import Pixels

_BATCH = 32
_DEFAULT_CONNECTIONS = 4
_MOST_CONNECTIONS = 256
_OPTIONS = {
    "model": "NAME",
    "timeout": "SECONDS",
    "connections": "NUMBER",
    "question": "FILE",
    "temperature": "NUMBER or default",
}
#: Codes of errors that say that the content was refused, not that the request is wrong.
_REFUSALS = ("content_policy_violation", "content_filter", "moderation_blocked")


@dataclass(frozen=True)
class ChatAnswer:
    """What the server said about one image.

    Attributes:
        text: The answer; empty where the model refused.
        model: The name under which the server knows the model that answered, often with a date; empty if it does not
            say so.
        usage: What it counted: ``tokens`` and, if it says so, ``cost``.
    """

    text: str
    model: str
    usage: Mapping[str, float]


class ChatServer(JsonServer):
    """The requests to one model of an OpenAI-compatible server.

    Args:
        url: The address of the API, such as ``http://HOST/v1``.
        model: The name of the model there.
        timeout: Seconds for one request.
        connections: Requests at the same time.
        temperature: None leaves it to the server.
    """

    protocol = "the chat completions of an OpenAI-compatible server"

    def __init__(self, url: str, model: str, timeout: float, connections: int, temperature: float | None) -> None:
        super().__init__(url, timeout)
        self.model = model
        self.connections = connections
        self.temperature = temperature
        self._free = threading.BoundedSemaphore(connections)

    def ask(self, question: str, image: Pixels) -> ChatAnswer:
        """The answer to a question about an image."""
        parts = [
            {"type": "text", "text": question},
            {"type": "image_url", "image_url": {"url": data_url(image)}},
        ]
        request: dict[str, object] = {"model": self.model, "messages": [{"role": "user", "content": parts}]}
        if self.temperature is not None:
            request["temperature"] = self.temperature
        try:
            with self._free:
                answer = self.answer(f"{self.url}/chat/completions", request)
        except RefusedRequestError as error:
            if _is_refused_content(error.body):
                return ChatAnswer("", "", {})
            raise
        return ChatAnswer(self._text_of(answer), str(answer.get("model") or ""), _usage(answer))

    def _text_of(self, answer: Mapping[str, object]) -> str:
        """The text of the only choice; empty if the model refused."""
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise self.wrong("has no choices", json.dumps(answer)[:200])
        message = choices[0].get("message")
        if not isinstance(message, dict):
            raise self.wrong("has no message", json.dumps(answer)[:200])
        content = message.get("content")
        if content is None or message.get("refusal") or choices[0].get("finish_reason") == "content_filter":
            return ""
        return str(content)


class ChatClassifier(BatchedClassifier):
    """A vision-language model that answers with the name of a class, or not.

    A run does not compare its answers on fixed images with earlier ones: they cost money, and may differ by chance.
    The name that the server gives to the model is part of its version instead.
    """

    outputs = "answers"
    self_contained = True

    def __init__(self, server: ChatServer, name: str, space: LabelSpace, question: str) -> None:
        super().__init__()
        self.server = server
        self.name = name
        self.space = space
        self.preprocessing = Preprocessing()
        self.takes_pixels = True
        self.batch_size = _BATCH
        self.question = question_text(space.names, question)
        #: The name under which the server knows the model; the first answer has it.
        self.served_name = ""
        self.is_tried = False
        self._counts: dict[str, float] = {}
        self._counting = threading.Lock()

    @property
    def fingerprint(self) -> str:
        identity = digest("chat", self.server.url, self.served_name, self.question, str(self.server.temperature))
        return network_fingerprint(identity, self.preprocessing.normalisation, self.outputs)

    def take_usage(self) -> Mapping[str, float]:
        with self._counting:
            usage = {**self._counts, "repeated requests": float(self.server.repeated)}
            self._counts = {}
            self.server.repeated = 0
        return usage

    def forward(self, images: Pixels) -> NDArray[np.float32]:
        scores = np.zeros((len(images), len(self.space)), np.float32)
        with ThreadPoolExecutor(self.server.connections) as threads:
            for row, answer in zip(scores, threads.map(self._ask, images), strict=True):
                name = named_class(answer.text, self.space.names)
                if name is not None:
                    row[self.space.names.index(name)] = 1
        return scores

    def try_once(self, image: Pixels) -> None:
        """Ask about one image, so that a wrong address or key is reported before a run begins."""
        self.served_name = self._ask(image).model
        self.engine = f"chat completions of {self.served_name or self.server.model}, not tied to weights"
        self.is_tried = True

    def _ask(self, image: Pixels) -> ChatAnswer:
        if self.preprocessing.normalisation.colour_order == "bgr":
            image = image[..., ::-1]
        answer = self.server.ask(self.question, np.ascontiguousarray(image))
        counts = {"requests": 1.0, **answer.usage}
        if not answer.text:
            counts["refusals"] = 1.0
        with self._counting:
            for what, count in counts.items():
                self._counts[what] = self._counts.get(what, 0) + count
        if self.served_name and answer.model not in ("", self.served_name):
            raise ClassifierError(
                f"another model answers for {self.name} than in the beginning",
                found=answer.model,
                expected=self.served_name,
                hint="rerun the same command to evaluate the model that answers now",
            )
        return answer

    def __getstate__(self) -> dict[str, object]:
        raise TypeError(f"{self.name} is loaded again from its address, not pickled")


def load_chat(target: str, options: Options) -> ChatClassifier:
    """Load ``http://HOST/v1?model=NAME[&timeout=60&connections=4&question=FILE&temperature=0]``.

    Raises ClassifierError if the server does not answer, or nothing names the classes.
    """
    parts = urlsplit(target)
    check_address(parts)
    stated = address_options(parts, _OPTIONS)
    if parts.scheme not in ("http", "https") or not stated.get("model"):
        raise ClassifierError(
            "not the address of a chat model", found=target, expected="chat:http://HOST/v1?model=NAME"
        )
    space = options.labels or options.default_labels
    if space is None:
        raise ClassifierError(
            f"{stated['model']} has to choose from the names of the classes",
            hint=f"{argument('labels')} with a label space or a file of names",
        )
    question = QUESTION
    if "question" in stated:
        question = Path(stated["question"]).read_text(encoding="utf-8").strip()
    check_question(space.names, question)
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    server = ChatServer(url, stated["model"], stated_timeout(stated), _connections(stated), _temperature(stated))
    classifier = ChatClassifier(server, options.name or stated["model"].replace("/", "-"), space, question)

    def trial(preprocessing: Preprocessing) -> NDArray[np.float32]:
        classifier.preprocessing = preprocessing
        if not classifier.is_tried:
            classifier.try_once(options.trial_images(preprocessing)[0])
        return np.empty((0, len(space)), np.float32)

    known_input = replace(known_inputs((None, None, None, 3), pixels=True)[0], assumed=())
    sources = {**options.sources, "outputs": "library"}
    settled, scores = settle(classifier.name, replace(options, outputs="answers", sources=sources), known_input, trial)
    return settled.finish(classifier, scores)


def _connections(stated: Mapping[str, str]) -> int:
    text = stated.get("connections", str(_DEFAULT_CONNECTIONS))
    if not text.isdecimal() or not 0 < int(text) <= _MOST_CONNECTIONS:
        raise ClassifierError(
            "invalid number of connections", found=text, expected=f"a number from 1 to {_MOST_CONNECTIONS}"
        )
    return int(text)


def _temperature(stated: Mapping[str, str]) -> float | None:
    """The temperature; None leaves it to the server, as some models demand."""
    text = stated.get("temperature", "0")
    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise ClassifierError("invalid temperature", found=text, expected="a number, or default") from None


def _usage(answer: Mapping[str, object]) -> dict[str, float]:
    """Tokens and cost, as far as the server counts them."""
    usage = answer.get("usage")
    counts: dict[str, float] = {}
    if isinstance(usage, dict):
        for name, key in (("tokens", "total_tokens"), ("cost", "cost")):
            value = usage.get(key)
            if isinstance(value, int | float):
                counts[name] = float(value)
    return counts


def _is_refused_content(body: str) -> bool:
    """Whether an error says that the server refuses the content of a request."""
    try:
        error = json.loads(body)["error"]
        return error.get("code") in _REFUSALS
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
