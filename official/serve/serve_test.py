"""serve_main with small runs of all models: what it answers, refuses and survives.

Usage: MODULE SERVE_MAIN MNIST_MAIN RESNET_MAIN NCF_MAIN TRANSFORMER_MAIN TRANSLATE_MAIN [unittest argument...]
"""

import base64
import gzip
import http.client
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest
import unittest.mock
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from official.programs.program_test_case import ProgramTestCase, png, programs_of_arguments

serve, mnist, resnet, ncf, transformer, translate = programs_of_arguments(6)


def picture(seed: int) -> bytes:
    """A PNG file of 28 x 28 random grey values."""
    rng = random.Random(seed)
    return png(28, b"".join(bytes([rng.randrange(256)]) * 3 for _ in range(784)))


def pixels(seed: int) -> list[list[float]]:
    """The values that the network sees of the same picture."""
    rng = random.Random(seed)
    return [[rng.randrange(256) / 255 for _ in range(28)] for _ in range(28)]


def floats(values: list[float]) -> list[float]:
    """As the nearest float32."""
    return list(struct.unpack(f"{len(values)}f", struct.pack(f"{len(values)}f", *values)))


def wait_until_signals_stop(pid: int) -> None:
    """Until the process takes signals as requests to stop: SIGUSR2 is the last one that it then has a handler for, and
    has none before. (For SIGTERM it has one for a moment when it begins.)"""
    number = signal.SIGUSR2
    end = time.monotonic() + ProgramTestCase.deadline
    while time.monotonic() < end:
        (caught,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
        if int(caught.split()[1], 16) >> (number - 1) & 1:
            return
    raise AssertionError(f"serve_main has not begun to catch signal {number}")


class Server:
    """A process of serve_main, killed at the end of the test."""

    def __init__(self, test: unittest.TestCase, model_dir: Path, *flags: object) -> None:
        command = [str(serve), f"--model_dir={model_dir}", "--rest_api_port=0", "--output=json", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.kill)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.told = json.loads(line)
        self.port = self.told["port"]

    def line_of_stderr(self, words: str) -> str:
        """The next line with these words."""
        assert self.process.stderr is not None
        late = threading.Timer(ProgramTestCase.deadline, self.process.kill)
        late.start()
        try:
            for line in self.process.stderr:
                if words in line:
                    return line
        finally:
            late.cancel()
        raise AssertionError(f"serve_main has not said '{words}'")

    def limit_memory(self, more: int) -> None:
        """Lets the process have so many bytes of addresses more than it has."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[0])
        used = pages * resource.getpagesize()
        if used > 1 << 40:
            raise unittest.SkipTest("a sanitizer takes terabytes of addresses")
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_AS)
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (used + more, hard))

    def bytes_read(self) -> int:
        """Of all files, by system calls."""
        (line,) = [line for line in Path(f"/proc/{self.process.pid}/io").read_text().splitlines() if "rchar" in line]
        return int(line.split()[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=ProgramTestCase.deadline)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ProgramTestCase.deadline)
        try:
            text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None, response.headers
        finally:
            connection.close()

    def predict(self, body: Any) -> tuple[int, Any]:
        status, answer, _ = self.ask("POST", "/v1/models/mnist:predict", body)
        return status, answer

    def raw(self, request: bytes) -> bytes:
        """All that the server sends for these bytes, until it closes the connection."""
        with self.connect() as client:
            client.sendall(request)
            return self.rest(client)

    @staticmethod
    def rest(client: socket.socket) -> bytes:
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer


class ServeTest(ProgramTestCase):
    """All tests use one run, with a checkpoint of step 2."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.run_dir = cls.folder / "run"
        done = cls.train(cls.run_dir, 2)
        assert done.returncode == 0, done.stderr

    @classmethod
    def train(cls, model_dir: Path, steps: int, *more: str) -> subprocess.CompletedProcess[str]:
        flags = ("--use_synthetic_data", "--batch_size=4", f"--max_train_steps={steps}", f"--model_dir={model_dir}")
        return cls.execute(mnist, *flags, "--learning_rate=0.01", *more)

    def server(self, *flags: object, model_dir: Path | None = None) -> Server:
        return Server(self, model_dir or self.run_dir, *flags)

    def predicted(self, model_dir: Path, seeds: range) -> list[dict[str, Any]]:
        """What mnist_main --predict says of the pictures."""
        files = [self.write(f"{seed}.png", picture(seed)) for seed in seeds]
        done = self.execute(mnist, f"--model_dir={model_dir}", "--output=json", "--predict", *files)
        self.assert_succeeded(done)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def assert_same(self, answer: dict[str, Any], expected: dict[str, Any]) -> None:
        self.assertEqual(answer["classes"], expected["class"])
        ours, theirs = answer["probabilities"], expected["probabilities"]
        # Batches of other sizes are summed in another order.
        self.assertTrue(all(abs(a - b) < 1e-6 for a, b in zip(ours, theirs, strict=True)), f"{ours}\n{theirs}")

    def test_predictions_are_those_of_mnist_main(self) -> None:
        server = self.server()
        expected = self.predicted(self.run_dir, range(3))
        self.assertNotEqual(expected[0]["probabilities"], expected[1]["probabilities"])
        encoded = [{"b64": base64.b64encode(picture(seed)).decode()} for seed in range(3)]
        plain = [pixels(seed) for seed in range(3)]
        for images in (encoded, plain, [encoded[0], plain[1], encoded[2]]):
            status, rows = server.predict({"signature_name": "classify", "instances": images})
            self.assertEqual(status, 200, rows)
            status, named = server.predict({"instances": [{"image": image} for image in images]})
            self.assertEqual((status, named), (200, rows))
            status, columns = server.predict({"inputs": {"image": images}})
            self.assertEqual(status, 200, columns)
            for i, answer in enumerate(rows["predictions"]):
                self.assert_same(answer, expected[i])
                self.assert_same({name: values[i] for name, values in columns["outputs"].items()}, expected[i])

    def test_mnist_main_predicts_for_the_names_on_standard_input(self) -> None:
        files = [self.write(f"named{seed}.png", picture(seed)) for seed in range(3)]
        expected = self.predicted(self.run_dir, range(3))
        command = [str(mnist), f"--model_dir={self.run_dir}", "--output=json", "--predict=-"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            # Each result comes before the next name.
            for file, result in zip(files, expected):
                process.stdin.write(f"{file}\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                self.assertEqual(answer["file"], str(file))
                self.assert_same({"classes": answer["class"], "probabilities": answer["probabilities"]}, result)
            stdout, stderr = process.communicate(timeout=self.deadline)
        self.assertEqual((process.returncode, stdout), (0, ""), stderr)
        # Bad lines are named, the others answered in order; the last line may be without an end.
        lines = f"{files[1]}\n/nowhere/1.png\n\n{files[0]}\n{mnist}\n{files[2]}"
        done = self.execute(mnist, *command[1:], stdin=lines)
        self.assertEqual(done.returncode, 65, done.stderr)
        named = [json.loads(line)["file"] for line in done.stdout.splitlines()]
        self.assertEqual(named, [str(files[1]), str(files[0]), str(files[2])])
        for words in ("line 2: ", "/nowhere/1.png", f"line 5: {mnist}: ", "2 of 6 lines of standard input are bad"):
            self.assertIn(words, done.stderr)
        self.assertEqual(self.execute(mnist, *command[1:]).returncode, 0)
        self.assert_refused(self.execute(mnist, *command[1:], files[0]), 2, "predict", "alone")

    def test_status_metadata_and_what_is_not_there(self) -> None:
        server = self.server("--model_name=digits")
        self.assertEqual(server.told["url"], f"http://127.0.0.1:{server.port}/v1/models/digits")
        for path in ("/v1/models/digits", "/v1/models/digits/versions/2"):
            status, answer, headers = server.ask("GET", path)
            self.assertEqual((status, headers["Content-Type"]), (200, "application/json"))
            self.assertEqual(answer["model_version_status"][0]["version"], "2")
            self.assertEqual(answer["model_version_status"][0]["state"], "AVAILABLE")
        status, answer, _ = server.ask("GET", "/v1/models/digits/metadata")
        self.assertEqual((status, answer["model_spec"]["version"]), (200, "2"))
        for method, path, code, words in (
            ("GET", "/v1/models/mnist", 404, "Servable not found for request: Latest(mnist)"),
            ("GET", "/v1/models/digits/versions/3", 404, "Servable not found for request: Specific(digits, 3)"),
            ("POST", "/v1/models/digits/versions/3:predict", 404, "Specific(digits, 3)"),
            ("GET", "/", 400, "Malformed request: GET /"),
            ("POST", "/v1/models/digits:explain", 400, "Malformed request: POST /v1/models/digits:explain"),
            ("GET", "/v1/models/digits:predict", 405, "this path is for POST"),
            ("PUT", "/v1/models/digits", 405, "this path is for GET"),
        ):
            status, answer, headers = server.ask(method, path)
            self.assertEqual((status, list(answer)), (code, ["error"]), path)
            self.assertIn(words, answer["error"])
            if code == 405:
                self.assertEqual(headers["Allow"], words.rsplit(" ", 1)[1])
        status, answer, _ = server.ask("HEAD", "/v1/models/digits")
        self.assertEqual((status, answer), (405, None))

    def test_bad_requests_are_refused_and_others_answered(self) -> None:
        server = self.server("--max_request_bytes=100000")
        for body, words in (
            ("", "JSON Parse error"),
            ('{"instances": [NaN]}', "JSON Parse error"),
            ("[" * 50000, "nested more than 64 deep"),
            ({}, "Missing 'inputs' or 'instances' key"),
            ({"instances": [[[0.5] * 28] * 27]}, "instances[0] is a list of 27"),
            ({"instances": [pixels(0), [[0.5] * 28] * 27 + [[0.5] * 27]]}, "instances[1][27] is a list of 27"),
            ({"instances": [{"b64": "AAAA"}]}, "example 0: the image"),
            ({"instances": [pixels(0), [[1.5] * 28] * 28]}, "example 1: the image has a pixel of 1.5"),
            ({"instances": [[[1.0000001] * 28] * 28]}, "example 0: the image has a pixel of 1.0000001"),
            ({"instances": [[[-0.5] * 28] * 28]}, "example 0: the image has a pixel of -0.5"),
            ({"instances": [{"b64": base64.b64encode(png(27, bytes(27 * 27 * 3))).decode()}]}, "28x28 pixels"),
            ({"instances": [{"b64": base64.b64encode(picture(1)[:-20]).decode()}]}, "example 0: the image"),
        ):
            status, answer = server.predict(body)
            self.assertEqual((status, list(answer)), (400, ["error"]), answer)
            self.assertIn(words, answer["error"])
        header = b"POST /v1/models/mnist:predict HTTP/1.1\r\nHost: x\r\n"
        chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"7000\r\n%s\r\n" % (b" " * 0x7000) * 10
        for request, code in (
            (header + b"Content-Length: 100001\r\n\r\n", 413),
            (header + b"Content-Length: 999999999999999999999\r\n\r\n", 400),
            (header + b"Content-Length: -1\r\n\r\n", 400),
            (header + chunks, 413),
            (header + b"X: %s\r\n\r\n" % (b"x" * 20000), 431),
            (header + b"X: x\r\n" * 10000, 431),
            (b"hello\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(100)), 400),  # TLS
        ):
            head, _, body = server.raw(request).partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 %d " % code), (request[:100], head))
            self.assertEqual(list(json.loads(body)), ["error"])
        # A body that is compressed is told from one that is not JSON, and not read.
        compressed = gzip.compress(json.dumps({"instances": [pixels(0)]}).encode())
        for headers, body, coding in (
            ({"Content-Encoding": "gzip"}, compressed, "gzip"),
            ({"Content-Encoding": "identity, BR"}, compressed, "BR"),
            ({"Transfer-Encoding": "gzip, chunked"}, b"2\r\n{}\r\n0\r\n\r\n", "gzip"),
            ({"Transfer-Encoding": "gzip"}, compressed, "gzip"),
        ):
            status, answer, _ = server.ask("POST", "/v1/models/mnist:predict", body, **headers)
            self.assertEqual(status, 415, answer)
            self.assertEqual(answer["error"], f"the body is compressed ({coding}); send it as it is")
        plain = {"instances": [pixels(0)]}
        status, answer, _ = server.ask("POST", "/v1/models/mnist:predict", plain, **{"Content-Encoding": "identity"})
        self.assertEqual(status, 200, answer)
        # A client that asks first is told before it sends.
        with server.connect() as client:
            client.sendall(header + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            self.assertEqual(client.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(b"{}")
            self.assertIn(b"HTTP/1.1 400 ", client.recv(1000))
        # So many images would be more than 16 times the bytes of a request.
        image = {"b64": base64.b64encode(png(1, bytes(3))).decode()}
        status, answer = server.predict({"instances": [image] * 511})
        self.assertEqual(status, 413, answer)
        self.assertIn("the 511 examples have 1602496 bytes when decoded, more than 1600000", answer["error"])
        self.assertEqual(server.predict({"instances": [pixels(0)]})[0], 200)

    def test_many_clients_get_their_own_answers(self) -> None:
        server = self.server("--max_connections=50", "--max_pending_requests=1000")
        expected = self.predicted(self.run_dir, range(20))

        def ask(i: int) -> None:
            seeds = [i % 20] * (1 + i % 3)
            status, answer = server.predict({"instances": [pixels(seed) for seed in seeds]})
            self.assertEqual(status, 200, answer)
            self.assertEqual(len(answer["predictions"]), len(seeds))
            for one in answer["predictions"]:
                self.assert_same(one, expected[i % 20])

        with ThreadPoolExecutor(200) as clients:
            list(clients.map(ask, range(200)))

    def test_slow_clients_are_disconnected(self) -> None:
        server = self.server("--rest_api_timeout_in_ms=3000", "--max_connections=3")
        header = b"POST /v1/models/mnist:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        clients = [server.connect() for _ in range(3)]
        clients[0].sendall(header[:20])
        clients[1].sendall(header)
        end = time.monotonic() + self.deadline
        try:
            # A byte now and then gains no time.
            while True:
                self.assertLess(time.monotonic(), end)
                clients[2].sendall(b"x")
                clients[2].settimeout(0.05)
                try:
                    self.assertEqual(clients[2].recv(1), b"")
                    break
                except TimeoutError:
                    pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        for client in clients[:2]:
            self.assertEqual(client.recv(1), b"")
        # This one waits until there is room.
        self.assertEqual(server.predict({"instances": [pixels(0)]})[0], 200)
        for client in clients:
            client.close()

    def test_a_request_beyond_the_limit_is_told_so_and_one_that_waits_is_answered_before_the_end(self) -> None:
        # The first request waits for another, for longer than the test may take.
        server = self.server(
            "--max_pending_requests=1", "--batch_timeout_micros=600000000", "--rest_api_timeout_in_ms=600000"
        )
        answers: list[tuple[int, Any]] = []

        def ask() -> None:
            while not answers or answers[-1][0] == 503:
                answers.append(server.predict({"instances": [pixels(0)]}))

        waiting = threading.Thread(target=ask)
        waiting.start()
        end = time.monotonic() + self.deadline
        while (refused := server.ask("POST", "/v1/models/mnist:predict", "{}"))[0] != 503:
            self.assertEqual(refused[0], 400)
            self.assertLess(time.monotonic(), end)
        self.assertIn("1 requests are waiting", refused[1]["error"])
        self.assertEqual(refused[2]["Retry-After"], "1")
        idle = server.connect()
        begun = server.connect()
        begun.sendall(b"GET /v1/models/mnist HTTP/1.1\r\n")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(idle.recv(1), b"")
        waiting.join()
        self.assertEqual(answers[-1][0], 200)
        with self.assertRaises(ConnectionRefusedError):
            server.connect()
        begun.sendall(b"Host: x\r\n\r\n")
        self.assertIn(b"HTTP/1.1 200 OK", Server.rest(begun))
        idle.close()
        begun.close()
        _, stderr = server.process.communicate(timeout=self.deadline)
        self.assertEqual(server.process.returncode, -signal.SIGTERM, stderr)
        self.assertIn("serve_main: stopped; all requests that had begun are answered", stderr)

    def test_requests_that_the_system_has_taken_have_begun(self) -> None:
        server = self.server()
        server.process.send_signal(signal.SIGSTOP)
        clients = [server.connect() for _ in range(4)]
        for client in clients:
            client.sendall(b"GET /v1/models/mnist HTTP/1.1\r\n")
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGCONT)
        server.line_of_stderr("stopping:")
        for client in clients:
            client.sendall(b"Host: x\r\n\r\n")
            self.assertIn(b"HTTP/1.1 200 OK", Server.rest(client))
            client.close()
        _, stderr = server.process.communicate(timeout=self.deadline)
        self.assertEqual(server.process.returncode, -signal.SIGTERM, stderr)

    def test_without_clients_a_signal_ends_it(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            server = self.server()
            server.process.send_signal(number)
            _, stderr = server.process.communicate(timeout=self.deadline)
            self.assertEqual(server.process.returncode, -number, stderr)

    def test_requests_that_are_not_answered_are_told_of_at_the_end(self) -> None:
        server = self.server()
        with server.connect() as left:
            left.sendall(b"POST /v1/models/mnist:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            server.process.send_signal(signal.SIGTERM)
            server.line_of_stderr("stopping: answering the requests that have begun")
        _, stderr = server.process.communicate(timeout=self.deadline)
        self.assertEqual(server.process.returncode, -signal.SIGTERM, stderr)
        self.assertIn("serve_main: stopped; requests that had begun and are not answered: 1", stderr)

    def test_a_request_that_has_waited_too_long_is_told_so(self) -> None:
        # The batch would begin after ten minutes.
        server = self.server("--rest_api_timeout_in_ms=3000", "--batch_timeout_micros=600000000")
        status, answer = server.predict({"instances": [pixels(0)]})
        self.assertEqual(status, 504, answer)
        self.assertIn("--rest_api_timeout_in_ms", answer["error"])

    def test_a_new_checkpoint_is_served(self) -> None:
        copy = self.folder / "grows"
        shutil.copytree(self.run_dir, copy)
        server = self.server(model_dir=copy)
        codes = set()
        self.assert_succeeded(self.train(copy, 4))
        end = time.monotonic() + self.deadline
        version = ""
        while version != "4":
            codes.add(server.predict({"instances": [pixels(0)]})[0])
            version = server.ask("GET", "/v1/models/mnist")[1]["model_version_status"][0]["version"]
            self.assertLess(time.monotonic(), end)
        self.assertEqual(codes, {200})
        _, answer = server.predict({"instances": [pixels(0)]})
        (expected,) = self.predicted(copy, range(1))
        self.assert_same(answer["predictions"][0], expected)
        server.line_of_stderr("serving step 4 (model.ckpt-4)")
        # One that is damaged is not, and as soon as it is whole, it is.
        data = ".data-00000-of-00001"
        (copy / f"model.ckpt-5{data}").write_bytes(b"no checkpoint")
        shutil.copy(copy / "model.ckpt-4.index", copy / "model.ckpt-5.index")
        (copy / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
        server.line_of_stderr("model.ckpt-5 is not served, but the one before")
        self.assertEqual(server.predict({"instances": [pixels(0)]}), (200, answer))
        shutil.copy(copy / f"model.ckpt-4{data}", copy / "whole")
        (copy / "whole").rename(copy / f"model.ckpt-5{data}")
        server.line_of_stderr("serving step 4 (model.ckpt-5)")
        # The same if none is whole.
        for file in copy.glob("model.ckpt-*"):
            file.write_bytes(b"no checkpoint")
        (copy / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-6"\n')
        server.line_of_stderr("model.ckpt-6 is not served, but the one before")
        self.assertEqual(server.predict({"instances": [pixels(0)]}), (200, answer))

    def test_a_checkpoint_that_is_damaged_at_the_start_is_served_when_it_is_whole(self) -> None:
        copy = self.folder / "damaged"
        shutil.copytree(self.run_dir, copy)
        data = ".data-00000-of-00001"
        (copy / f"model.ckpt-5{data}").write_bytes(b"no checkpoint")
        shutil.copy(copy / "model.ckpt-2.index", copy / "model.ckpt-5.index")
        (copy / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
        server = self.server(model_dir=copy)
        self.assertEqual(server.told["version"], 2)
        server.line_of_stderr("model.ckpt-5 is not served, but the one before")
        shutil.copy(copy / f"model.ckpt-2{data}", copy / "whole")
        (copy / "whole").rename(copy / f"model.ckpt-5{data}")
        server.line_of_stderr("serving step 2 (model.ckpt-5)")

    def test_a_checkpoint_that_is_replaced_under_its_name_is_served(self) -> None:
        copy, other = self.folder / "replaced", self.folder / "other"
        shutil.copytree(self.run_dir, copy)
        self.assert_succeeded(self.train(other, 2, "--seed=7"))
        server = self.server(model_dir=copy)
        for suffix in (".data-00000-of-00001", ".index"):
            shutil.copy(other / f"model.ckpt-2{suffix}", copy / "new")
            (copy / "new").rename(copy / f"model.ckpt-2{suffix}")
        server.line_of_stderr("serving step 2 (model.ckpt-2)")
        ours, others = self.predicted(self.run_dir, range(1)), self.predicted(other, range(1))
        self.assertNotEqual(ours[0]["probabilities"], others[0]["probabilities"])
        _, answer = server.predict({"instances": [pixels(0)]})
        self.assert_same(answer["predictions"][0], others[0])

    def test_each_checkpoint_is_verified_once(self) -> None:
        copy = self.folder / "verified_once"
        shutil.copytree(self.run_dir, copy)
        server = self.server(model_dir=copy)
        # Then the variables are read, without those of the optimizer.
        most = 2 * (copy / "model.ckpt-2.data-00000-of-00001").stat().st_size
        at_start = server.bytes_read()
        self.assertLess(at_start, most)
        for suffix in (".data-00000-of-00001", ".index"):
            shutil.copy(self.run_dir / f"model.ckpt-2{suffix}", copy / "new")
            (copy / "new").rename(copy / f"model.ckpt-2{suffix}")
        server.line_of_stderr("serving step 2 (model.ckpt-2)")
        self.assertLess(server.bytes_read() - at_start, most)

    def test_a_checkpoint_for_which_there_is_no_memory_is_served_when_there_is(self) -> None:
        copy = self.folder / "no_memory"
        shutil.copytree(self.run_dir, copy)
        server = self.server("--intra_op_parallelism_threads=1", "--dtype=fp32", model_dir=copy)
        self.assertEqual(server.predict({"instances": [pixels(0)]})[0], 200)
        server.limit_memory(8 << 20)
        for suffix in (".data-00000-of-00001", ".index"):
            shutil.copy(self.run_dir / f"model.ckpt-2{suffix}", copy / "new")
            (copy / "new").rename(copy / f"model.ckpt-2{suffix}")
        server.line_of_stderr("model.ckpt-2 is not served, but the one before: ")
        self.assertIn(server.predict({"instances": [pixels(0)]})[0], (200, 500))
        server.limit_memory(1 << 30)
        server.line_of_stderr("serving step 2 (model.ckpt-2)")
        self.assertEqual(server.predict({"instances": [pixels(0)]})[0], 200)

    def test_bodies_for_which_there_is_no_memory_are_refused(self) -> None:
        server = self.server("--file_system_poll_wait_seconds=0")
        server.limit_memory(1 << 20)
        header = b"POST /v1/models/mnist:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n"
        clients = [server.connect() for _ in range(14)]
        for client in clients:
            client.sendall(header + b" ")
        refused, _, _ = select.select(clients, [], [], self.deadline)
        for client in refused:
            answer = Server.rest(client)
            self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
            self.assertIn(b"no memory for the body of the request", answer)
        for client in clients:
            client.close()
        self.assertEqual(server.ask("GET", "/v1/models/mnist")[0], 200)
        server.limit_memory(1 << 30)
        self.assertEqual(server.predict({"instances": [pixels(0)]})[0], 200)

    def test_a_signal_before_it_serves_ends_it(self) -> None:
        command = [str(serve), f"--model_dir={self.run_dir}", "--rest_api_port=0"]
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                # It may have begun to serve before the signal comes.
                for _ in range(20):
                    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    self.addCleanup(process.kill)
                    wait_until_signals_stop(process.pid)
                    process.send_signal(number)
                    stdout, stderr = process.communicate(timeout=self.deadline)
                    self.assertEqual(process.returncode, -number, stderr)
                    self.assertIn("serve_main: stopped", stderr)
                    if stdout == "":
                        break
                self.assertEqual(stdout, "")
                self.assertIn("serve_main: stopped before it served", stderr)

    def test_what_cannot_be_served_is_told_in_one_line(self) -> None:
        server = self.server()
        run = f"--model_dir={self.run_dir}"
        self.assert_refused(self.execute(serve, run, f"--rest_api_port={server.port}"), 73, "in use", server.port)
        self.assert_refused(self.execute(serve, run, "--host=example.org"), 2, "--host=example.org", "IP address")
        self.assert_refused(self.execute(serve, run, "--host=192.0.2.1", "--rest_api_port=0"), 2, "192.0.2.1")
        missing = self.folder / "missing"
        self.assert_refused(self.execute(serve, f"--model_dir={missing}"), 66, "no checkpoint", missing)
        without = self.folder / "without_flags"
        shutil.copytree(self.run_dir, without)
        (without / "flags.txt").unlink()
        self.assert_refused(self.execute(serve, f"--model_dir={without}"), 66, "flags.txt", without)
        # What cannot be read is not missing.
        (without / "flags.txt").write_bytes(bytes(2 << 20))
        self.assert_refused(self.execute(serve, f"--model_dir={without}"), 65, without / "flags.txt", "bytes")
        if os.geteuid() != 0:  # to whom nothing is forbidden
            for path in (without / "flags.txt", without):
                path.chmod(0)
                done = self.execute(serve, f"--model_dir={without}")
                self.assert_refused(done, 77, f"cannot read {without}/", "Permission denied")
            without.chmod(0o700)
        self.assert_refused(self.execute(serve), 2, "model_dir")
        self.assert_refused(self.execute(serve, run, "--rest_api_port=65536"), 2, "rest_api_port")
        for name in ("a/b", "a:b", "a?b", "a b", "a%20", "\u00e4"):
            self.assert_refused(self.execute(serve, run, f"--model_name={name}"), 2, "--model_name", "letters, digits")


class OtherModelsTest(ProgramTestCase):
    def predict(self, server: Server, model: str, instances: list[Any]) -> tuple[int, Any]:
        status, answer, _ = server.ask("POST", f"/v1/models/{model}:predict", {"instances": instances})
        return status, answer

    def test_resnet_classifies_photographs_as_resnet_main_does(self) -> None:
        model_dir = f"--model_dir={self.folder / 'resnet'}"
        flags = ("--dataset_name=cifar10", "--use_synthetic_data", "--resnet_size=8", "--batch_size=4")
        self.assert_succeeded(self.execute(resnet, *flags, "--max_train_steps=1", model_dir))
        rng = random.Random(1)
        files = [self.write(f"{size}.png", png(size, rng.randbytes(3 * size * size))) for size in (32, 50)]
        flags = (model_dir, "--output=json", "--top_k=10", "--predict=-")
        done = self.execute(resnet, *flags, stdin=f"{files[0]}\n{files[1]}")
        self.assert_succeeded(done)
        expected = [json.loads(line)["classes"] for line in done.stdout.splitlines()]
        server = Server(self, self.folder / "resnet")
        images = [{"b64": base64.b64encode(file.read_bytes()).decode()} for file in files]
        status, answer = self.predict(server, "resnet", images)
        self.assertEqual(status, 200, answer)
        for one, classes in zip(answer["predictions"], expected, strict=True):
            self.assertEqual(one["classes"], classes[0]["class"])
            for told in classes:
                self.assertAlmostEqual(one["probabilities"][told["class"]], told["probability"], delta=1e-5)
        status, answer = self.predict(server, "resnet", [{"b64": "AAAA"}])
        self.assertEqual((status, answer["error"]), (400, "example 0: the image is neither JPEG nor PNG"))
        for value in (255, 256, -3e38):
            status, answer = self.predict(server, "resnet", [[[[0] * 3] * 32] * 31 + [[[0, 0, value]] * 32]])
            self.assertEqual(status, 200 if value == 255 else 400, answer)
        self.assertEqual(answer["error"], "example 0: the image has a pixel of -3e+38; preprocessed ones are from -255 to 255")

    def test_ncf_recommends_what_ncf_main_does(self) -> None:
        rng = random.Random(1)
        items = rng.sample(range(1, 1201), 1200)
        lines = [f"{1 + i // 30},{item},4,{978300000 + i}\n" for i, item in enumerate(items)]
        ratings = self.write("ratings.csv", "user_id,item_id,rating,timestamp\n" + "".join(lines))
        model_dir = f"--model_dir={self.folder / 'ncf'}"
        flags = (f"--ratings_file={ratings}", model_dir)
        self.assert_succeeded(self.execute(ncf, *flags, "--batch_size=800", "--max_train_steps=3"))
        done = self.execute(ncf, *flags, "--output=json", "--top_k=4", "--predict=-", stdin="7\nx\n99\n1")
        self.assertEqual(done.returncode, 65, done.stderr)
        for words in ("line 2: 'x' is not the number of a user", "line 3: user 99 is not among the 40 users"):
            self.assertIn(words, done.stderr)
        expected = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([one["user"] for one in expected], [7, 1])
        server = Server(self, self.folder / "ncf", "--top_k=4")
        status, answer = self.predict(server, "ncf", [7, {"user": 1}])
        self.assertEqual(status, 200, answer)
        for one, told in zip(answer["predictions"], expected, strict=True):
            self.assertEqual(one["items"], [item["item"] for item in told["items"]])
            self.assertEqual(floats(one["ratings"]), [item["rating"] for item in told["items"]])
        status, answer = self.predict(server, "ncf", [7, 99])
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"], "example 1: user 99 is not among the 40 users with at least 20 ratings")
        # The ratings say what a user has rated.
        moved = ratings.rename(self.folder / "moved.csv")
        told = f"the training had --ratings_file={ratings}, which is not found from here; name the file with --ratings_file"
        self.assert_refused(self.execute(serve, model_dir), 66, told)
        self.assert_refused(self.execute(serve, model_dir, "--ratings_file=nowhere"), 66, "cannot read nowhere")
        server = Server(self, self.folder / "ncf", f"--ratings_file={moved}", "--top_k=4")
        _, answer = self.predict(server, "ncf", [7])
        self.assertEqual(answer["predictions"][0]["items"], [item["item"] for item in expected[0]["items"]])

    def test_ncf_leaves_out_the_lines_that_the_training_left_out(self) -> None:
        lines = [f"{1 + i // 30},{1 + i * 7 % 1200},4,{978300000 + i}\n" for i in range(1200)]
        ratings = self.write("with_bad_line.csv", "".join(lines[:600]) + "bad\n" + "".join(lines[600:]))
        model_dir = self.folder / "ncf_skips"
        flags = (f"--ratings_file={ratings}", "--skip_bad_records=1", f"--model_dir={model_dir}")
        self.assert_succeeded(self.execute(ncf, *flags, "--batch_size=800", "--max_train_steps=1"))
        server = Server(self, model_dir)
        status, answer = self.predict(server, "ncf", [7])
        self.assertEqual(status, 200, answer)

    def test_ncf_does_not_replace_missing_ratings_silently(self) -> None:
        # As many as MovieLens 100K has.
        ratings = "".join(f"{1 + i // 100}\t{1 + i // 100 * 7 % 1000 + i % 100}\t4\t{978300000 + i}\n" for i in range(100000))
        data_dir, model_dir = self.folder / "movielens", self.folder / "ncf_movielens"
        data_dir.mkdir()
        self.write("movielens/u.data", ratings)
        flags = ("--dataset=ml-100k", "--batch_size=1000", "--max_train_steps=1", "--num_eval_negatives=20")
        self.assert_succeeded(self.execute(ncf, *flags, f"--data_dir={data_dir}", f"--model_dir={model_dir}"))
        moved = data_dir.rename(self.folder / "moved_movielens") / "u.data"
        told = f"the training had ml-100k in {data_dir}, which is not found from here; put it back"
        words = [told, "--ratings_file"]
        self.assert_refused(self.execute(serve, f"--model_dir={model_dir}"), 66, *words)
        status, answer = self.predict(Server(self, model_dir, f"--ratings_file={moved}"), "ncf", [7])
        self.assertEqual(status, 200, answer)

        model_dir = self.folder / "ncf_generated"
        with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "cache")}):
            done = self.execute(ncf, *flags, "--download_if_missing=false", f"--model_dir={model_dir}")
            told = "the ratings are made by this program, as many as ml-100k has"
            self.assert_succeeded(done, told)
            Server(self, model_dir).line_of_stderr(told)

        # For that no ratings are looked for: data_dir is not there.
        model_dir = self.folder / "ncf_synthetic"
        synthetic = (*flags, "--use_synthetic_data", f"--data_dir={data_dir}")
        self.assert_succeeded(self.execute(ncf, *synthetic, f"--model_dir={model_dir}"))
        told = f"the network in --model_dir={model_dir} was trained with --use_synthetic_data, and can recommend nothing"
        self.assert_refused(self.execute(serve, f"--model_dir={model_dir}"), 2, told)

    def test_transformer_translates_as_translate_main_does(self) -> None:
        subtokens = ["<pad>", "<EOS>", *(f"w{i}_" for i in range(28))]
        vocab_file = self.write("vocab", "".join(f"'{subtoken}'\n" for subtoken in subtokens))
        # With this alpha the network, which knows nothing, prefers long translations.
        network = "hidden_size=16,num_heads=4,filter_size=32,vocab_size=30,num_hidden_layers=1,alpha=4"
        model_dir = f"--model_dir={self.folder / 'transformer'}"
        flags = ("--param_set=tiny", f"--params_override={network}", f"--vocab_file={vocab_file}", model_dir)
        data = ("--use_synthetic_data", "--batch_size=64", "--train_steps=1", "--steps_between_evals=1")
        self.assert_succeeded(self.execute(transformer, *flags, *data))
        lines = ["w1 w2 w3", "", "w7", "w7 w8 w9 w1 w2"]
        done = self.execute(translate, model_dir, f"--vocab_file={vocab_file}", stdin="\n".join(lines) + "\n")
        self.assert_succeeded(done)
        self.assertNotEqual(set(done.stdout.splitlines()), {""})
        server = Server(self, self.folder / "transformer")
        status, answer = self.predict(server, "transformer", lines)
        self.assertEqual((status, answer), (200, {"predictions": done.stdout.splitlines()}))
        for text, words in (("w1 ?", "example 1: "), ("w1 " * 2000, "the text has 2000 subtokens")):
            status, answer = self.predict(server, "transformer", ["w1", text])
            self.assertEqual(status, 400, answer)
            self.assertIn(words, answer["error"])
        server.kill()
        moved = vocab_file.rename(self.folder / "moved_vocab")
        told = f"the training had --vocab_file={vocab_file}, which is not found from here; name the file with --vocab_file"
        self.assert_refused(self.execute(serve, model_dir), 66, told)
        self.assert_refused(self.execute(serve, model_dir, "--vocab_file=nowhere"), 66, "cannot read nowhere")
        # A batch that takes minutes keeps neither clients nor a signal waiting.
        flags = (
            f"--vocab_file={moved}",
            "--rest_api_timeout_in_ms=1000",
            "--max_batch_size=128",
            "--intra_op_parallelism_threads=1",
        )
        server = Server(self, self.folder / "transformer", *flags)
        for instances in (["w1 " * 1000] * 128, ["w1"]):
            status, answer = self.predict(server, "transformer", instances)
            self.assertEqual(status, 504, answer)
            self.assertIn("--rest_api_timeout_in_ms", answer["error"])
        server.process.send_signal(signal.SIGTERM)
        _, stderr = server.process.communicate(timeout=self.deadline)
        self.assertEqual(server.process.returncode, -signal.SIGTERM, stderr)
        self.assertIn("serve_main: stopped; all requests that had begun are answered", stderr)


if __name__ == "__main__":
    unittest.main()
