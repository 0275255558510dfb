#include "utils/data/download.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/log.h"

// Stands in for the C library's flock, so that a file system can be one without locks.
int flock_error = 0;
extern "C" int flock(int fd, int operation) noexcept {
  if (flock_error == 0) return static_cast<int>(syscall(SYS_flock, fd, operation));
  errno = flock_error;
  return -1;
}

namespace official::data {
namespace {

using Catch::Contains;

// An HTTP server on the loopback address for one connection at a time.
class Server {
 public:
  struct Request {
    int number;         // 1 is the first that the server gets
    std::string path;   // "/file"
    int64_t range = 0;  // the file is asked for from this byte on
  };
  // What to send, whole with status line and headers; the connection is then closed, or left open and silent.
  struct Answer {
    std::string bytes;
    bool stall = false;
  };
  using Handler = std::function<Answer(const Request&)>;

  explicit Server(Handler handler) : handler_(std::move(handler)), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(socket_, 8) == 0);
    socklen_t size = sizeof(address);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Server() {
    stop_ = true;
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  std::string Url(const std::string& path) const { return absl::StrCat("http://127.0.0.1:", port_, path); }
  int num_requests() const { return num_requests_; }

 private:
  void Serve() {
    for (;;) {
      const int connection = accept(socket_, nullptr, nullptr);
      if (connection < 0) return;
      std::string text;
      char buffer[4096];
      while (!absl::StrContains(text, "\r\n\r\n")) {
        const ssize_t size = read(connection, buffer, sizeof(buffer));
        if (size <= 0) break;
        text.append(buffer, size);
      }
      Request request = {.number = ++num_requests_, .path = text.substr(4, text.find(' ', 4) - 4)};
      if (const size_t range = text.find("Range: bytes="); range != std::string::npos) {
        // Catch2's checks are not for threads; a range that cannot be read fails the test by its value.
        if (!absl::SimpleAtoi(text.substr(range + 13, text.find('-', range) - range - 13), &request.range)) {
          request.range = -1;
        }
      }
      Answer answer = handler_(request);
      // Else a client may send its next request here, while this end is closed.
      if (const size_t line = answer.bytes.find("\r\n"); line != std::string::npos) {
        answer.bytes.insert(line + 2, "Connection: close\r\n");
      }
      [[maybe_unused]] const ssize_t sent = send(connection, answer.bytes.data(), answer.bytes.size(), MSG_NOSIGNAL);
      while (answer.stall && !stop_ && recv(connection, buffer, 1, MSG_DONTWAIT) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      close(connection);
    }
  }

  Handler handler_;
  int socket_, port_;
  std::atomic<bool> stop_{false};
  std::atomic<int> num_requests_{0};
  std::thread thread_;
};

const std::string kContents = [] {
  std::string contents;
  for (int i = 0; i < 30000; ++i) absl::StrAppend(&contents, i, "\n");
  return contents;
}();
// Of kContents, by sha256sum: python3 -c 'print(*range(30000), sep="\n")' | sha256sum
constexpr char kSha256[] = "ac13b869a55098e6ec4af974da46932877ccdefec9a9d9f57357009273a7d7bf";

std::string Ok(const std::string& body, const std::string& more_headers = "") {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n", more_headers, "\r\n", body);
}
std::string Partial(const std::string& whole, int64_t from) {
  return absl::StrCat("HTTP/1.1 206 Partial Content\r\nContent-Length: ", whole.size() - from,
                      "\r\nContent-Range: bytes ", from, "-", whole.size() - 1, "/", whole.size(), "\r\n\r\n",
                      whole.substr(from));
}
// The first `size` bytes of an answer's body.
std::string Cut(const std::string& answer, size_t size) { return answer.substr(0, answer.find("\r\n\r\n") + 4 + size); }
const std::string kNotFound = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/download", ++number);
    std::filesystem::remove_all(directory_);
    options_.connect_timeout = options_.low_speed_time = options_.timeout = std::chrono::minutes(1);
    logs::InitLogging({.format = logs::LogFormat::kNone});
  }

 protected:
  RemoteFile File(std::vector<std::string> urls) const {
    return {.path = path(),
            .urls = std::move(urls),
            .num_bytes = static_cast<int64_t>(kContents.size()),
            .sha256 = kSha256};
  }
  absl::Status Download(std::vector<std::string> urls) const {
    return DownloadFiles({File(std::move(urls))}, options_);
  }
  std::string path() const { return directory_ + "/sub/file"; }
  std::string partial_path() const { return absl::StrCat(path(), files::kTemporarySuffix); }
  void WritePartial(const std::string& bytes) const {
    std::filesystem::create_directories(directory_ + "/sub");
    std::ofstream(partial_path(), std::ios::binary) << bytes;
  }
  void CheckWhole(const absl::Status& status) const {
    CHECK(status == absl::OkStatus());
    const bool is_whole = files::ReadFile(path(), 1 << 20).value_or("") == kContents;
    CHECK(is_whole);
    CHECK_FALSE(files::Exists(partial_path()));
  }
  // Nothing under the final name, and a message that names the file.
  std::string Refusal(const absl::Status& status) const {
    CHECK(absl::IsUnavailable(status));
    CHECK_FALSE(files::Exists(path()));
    CHECK_THAT(std::string(status.message()), Contains(path()));
    return std::string(status.message());
  }

  std::string directory_;
  DownloadOptions options_;
};

TEST_CASE_METHOD(Fixture, "A copy at hand is checked and taken, and no server asked") {
  Server server([](const Server::Request&) { return Server::Answer{Ok(kContents)}; });
  options_.from_dir = directory_ + "/usb";
  const std::string copy = options_.from_dir + "/file.bin";
  std::filesystem::create_directories(options_.from_dir);
  const auto error = [&] {
    const absl::Status status = Download({server.Url("/some/file.bin")});
    CHECK_FALSE(files::Exists(directory_ + "/sub"));  // nor is a directory left for it
    return status;
  };
  CHECK(absl::IsNotFound(error()));
  CHECK_THAT(std::string(error().message()), Contains(copy) && Contains("it should be a copy of http://127.0.0.1:"));
  std::ofstream(copy, std::ios::binary) << kContents.substr(1);
  CHECK(absl::IsDataLoss(error()));
  CHECK_THAT(std::string(error().message()),
             Contains(copy + " is not what is published at http://") &&
                 Contains(absl::StrCat("number of bytes: ", kContents.size() - 1, ", expected ", kContents.size())));
  std::ofstream(copy, std::ios::binary) << "1" << kContents.substr(1);
  CHECK(absl::IsDataLoss(error()));
  CHECK_THAT(std::string(error().message()), Contains("it has the SHA-256 ") && Contains(kSha256));
  std::ofstream(copy, std::ios::binary) << kContents;
  // What a transfer that broke off has left does no harm.
  WritePartial("something else");
  CheckWhole(Download({server.Url("/some/file.bin")}));
  CHECK(files::Exists(copy));
  CHECK(server.num_requests() == 0);
}

TEST_CASE_METHOD(Fixture, "A file is downloaded, checked and named") {
  Server server([](const Server::Request& request) {
    return Server::Answer{request.path == "/file" ? Ok(kContents) : kNotFound};
  });
  CheckWhole(Download({server.Url("/file")}));
  CheckWhole(Download({server.Url("/file")}));
  CHECK(server.num_requests() == 1);  // what is there is not asked for again
}

TEST_CASE_METHOD(Fixture, "A download and the check of its sum are shown") {
  Server server([](const Server::Request&) { return Server::Answer{Ok(kContents)}; });
  logs::CapturedTasks log;
  CheckWhole(Download({server.Url("/file")}));
  CHECK_THAT(log.Text(), Contains("downloading file   0% [") && Contains("verifying file.incomplete 100% ["));
}

TEST_CASE_METHOD(Fixture, "A file that no server has is an error that names all mirrors") {
  Server server([](const Server::Request&) { return Server::Answer{kNotFound}; });
  const std::string message = Refusal(Download({server.Url("/a"), server.Url("/b")}));
  CHECK_THAT(message, Contains(server.Url("/a") + ": ") && Contains(server.Url("/b") + ": ") && Contains("404"));
  CHECK(server.num_requests() == 2);
}

TEST_CASE_METHOD(Fixture, "The second mirror is used where the first fails") {
  Server server([](const Server::Request& request) {
    return Server::Answer{request.path == "/good" ? Ok(kContents) : kNotFound};
  });
  CheckWhole(Download({"http://127.0.0.1:1/file", server.Url("/bad"), server.Url("/good")}));
}

TEST_CASE_METHOD(Fixture, "A page sent instead of the file is recognized by its size and not stored") {
  Server server([](const Server::Request&) {
    return Server::Answer{Ok("<html>Please log in</html>", "Content-Type: text/html\r\n")};
  });
  CHECK_THAT(Refusal(Download({server.Url("/file")})), Contains("offers 26 bytes of text/html, expected 168890"));
  CHECK_FALSE(files::Exists(partial_path()));
}

TEST_CASE_METHOD(Fixture, "A body of unknown length may be neither longer nor shorter than expected") {
  const std::string body = GENERATE(std::string("short"), kContents + "x");
  Server server([&](const Server::Request&) { return Server::Answer{"HTTP/1.0 200 OK\r\n\r\n" + body}; });
  CHECK_THAT(Refusal(Download({server.Url("/file")})), Contains("sen") && Contains("168890"));
}

TEST_CASE_METHOD(Fixture, "A file with the wrong checksum is not kept") {
  std::string wrong = kContents;
  wrong[1000] ^= 1;
  Server server([&](const Server::Request&) { return Server::Answer{Ok(wrong)}; });
  CHECK_THAT(Refusal(Download({server.Url("/file")})), Contains("SHA-256") && Contains(kSha256));
  CHECK_FALSE(files::Exists(partial_path()));
  CHECK(server.num_requests() == 1);
}

TEST_CASE_METHOD(Fixture, "A transfer that breaks off continues where it stopped") {
  std::vector<int64_t> ranges;
  Server server([&](const Server::Request& request) {
    ranges.push_back(request.range);
    const std::string answer = request.range == 0 ? Ok(kContents) : Partial(kContents, request.range);
    return Server::Answer{request.number < 3 ? Cut(answer, 1000) : answer};
  });
  CheckWhole(Download({server.Url("/file")}));
  CHECK(ranges == std::vector<int64_t>{0, 1000, 2000});
}

TEST_CASE_METHOD(Fixture, "What a broken transfer left is the beginning of the next call's") {
  Server broken([&](const Server::Request&) { return Server::Answer{Cut(Ok(kContents), 500)}; });
  options_.attempts = 1;
  Refusal(Download({broken.Url("/file")}));
  CHECK(files::ReadFile(partial_path(), 1000).value() == kContents.substr(0, 500));
  Server server([&](const Server::Request& request) {
    return Server::Answer{request.range == 500 ? Partial(kContents, 500) : kNotFound};
  });
  CheckWhole(Download({server.Url("/file")}));
}

TEST_CASE_METHOD(Fixture, "A server that ignores the range sends the file from its beginning") {
  WritePartial("something else");
  Server server([](const Server::Request&) { return Server::Answer{Ok(kContents)}; });
  CheckWhole(Download({server.Url("/file")}));
}

TEST_CASE_METHOD(Fixture, "A wrong beginning is thrown away and the file downloaded again") {
  WritePartial("something else");
  Server server([](const Server::Request& request) {
    return Server::Answer{request.range == 0 ? Ok(kContents) : Partial(kContents, request.range)};
  });
  CheckWhole(Download({server.Url("/file")}));
  CHECK(server.num_requests() == 2);
}

TEST_CASE_METHOD(Fixture,
                 "Left-over files that are too long or that the server refuses to continue are started again") {
  const bool too_long = GENERATE(true, false);
  WritePartial(too_long ? kContents + "x" : "abc");
  Server server([](const Server::Request& request) {
    return Server::Answer{request.range == 0 ? Ok(kContents)
                                             : "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"};
  });
  CheckWhole(Download({server.Url("/file")}));
}

TEST_CASE_METHOD(Fixture, "A whole file under the temporary name needs no network") {
  WritePartial(kContents);
  CheckWhole(Download({"http://127.0.0.1:1/file"}));
}

TEST_CASE_METHOD(Fixture, "A busy server is asked again, a few times") {
  Server server([](const Server::Request& request) {
    return Server::Answer{request.number == 2 ? Ok(kContents) : "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"};
  });
  CheckWhole(Download({server.Url("/file")}));
  Server busy([](const Server::Request&) { return Server::Answer{"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"}; });
  std::filesystem::remove(path());
  CHECK_THAT(Refusal(Download({busy.Url("/file")})), Contains("503"));
  CHECK(busy.num_requests() == 3);
}

TEST_CASE_METHOD(Fixture, "Redirects are followed, but not for ever") {
  Server server([&](const Server::Request& request) {
    if (request.path == "/file") return Server::Answer{Ok(kContents)};
    const std::string target = request.path == "/moved" ? "/file" : "/loop";
    return Server::Answer{"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + target + "\r\n\r\n"};
  });
  CHECK_THAT(Refusal(Download({server.Url("/loop")})), Contains("redirects"));
  CHECK(server.num_requests() == 6);
  CheckWhole(Download({server.Url("/moved")}));
}

TEST_CASE_METHOD(Fixture, "A server that stalls is given up") {
  options_.low_speed_time = std::chrono::seconds(1);
  Server server([](const Server::Request&) { return Server::Answer{Cut(Ok(kContents), 10), /*stall=*/true}; });
  CHECK_THAT(Refusal(Download({server.Url("/file")})), Contains("too slow"));
  CHECK(server.num_requests() == 1);
}

TEST_CASE_METHOD(Fixture, "A host without a server is tried once for all files") {
  const std::string url = "http://127.0.0.1:1/file";
  const std::string message = Refusal(Download({url, url + "2"}));
  CHECK_THAT(message, Contains("Failed to connect") || Contains("Couldn't connect"));
  CHECK_THAT(message, Contains(path() + ": 127.0.0.1:1: ") && !Contains(";"));
}

TEST_CASE_METHOD(Fixture, "Where nothing comes, no directory is left, but nothing else is removed") {
  const std::string url = "http://127.0.0.1:1/file";
  Refusal(Download({url}));
  CHECK_FALSE(files::Exists(directory_));
  std::filesystem::create_directories(directory_);
  Refusal(Download({url}));
  CHECK(files::ListDirectory(directory_).value().empty());
  // What has come stays, for the next call.
  std::filesystem::remove_all(directory_);
  Server server([](const Server::Request&) { return Server::Answer{Cut(Ok(kContents), 1000)}; });
  Refusal(Download({server.Url("/file")}));
  CHECK(files::Exists(partial_path()));
}

TEST_CASE_METHOD(Fixture, "Other protocols are refused, also by redirect") {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ + "/secret") << kContents;
  Refusal(Download({"file://" + directory_ + "/secret"}));
  Server server([&](const Server::Request&) {
    return Server::Answer{"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: file://" + directory_ +
                          "/secret\r\n\r\n"};
  });
  Refusal(Download({server.Url("/file")}));
}

TEST_CASE_METHOD(Fixture, "Two that want the same file download it once") {
  Server server([](const Server::Request&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return Server::Answer{Ok(kContents)};
  });
  absl::Status first, second;
  std::thread other([&] { first = Download({server.Url("/file")}); });
  second = Download({server.Url("/file")});
  other.join();
  CheckWhole(first);
  CheckWhole(second);
  CHECK(server.num_requests() == 1);
}

TEST_CASE_METHOD(Fixture, "On a file system without locks files are downloaded, with one warning") {
  Server server([](const Server::Request&) { return Server::Answer{Ok(kContents)}; });
  logs::CapturedLog log(logs::LogFormat::kNone);
  flock_error = ENOSYS;
  CheckWhole(Download({server.Url("/file")}));
  std::filesystem::remove(path());
  CheckWhole(Download({server.Url("/file")}));
  flock_error = 0;
  const std::string text = log.Text(), warning = "the file system of " + directory_ + "/sub has no locks";
  CHECK_THAT(text, Contains(warning));
  CHECK(text.find(warning) == text.rfind(warning));
}

TEST_CASE_METHOD(Fixture, "A gzip file is stored inflated") {
  // printf abc | gzip -n | xxd -p; its checksum by sha256sum.
  const std::string gzipped = absl::HexStringToBytes("1f8b08000000000000034b4c4a0600c241243503000000");
  RemoteFile file = File({});
  file.num_bytes = static_cast<int64_t>(gzipped.size());
  file.sha256 = "a058a4f3405f909f3a49df0cb75d96198d371ae7913e5ef6b8114a382746ee5a";
  file.inflated_bytes = 3;
  Server server([&](const Server::Request&) { return Server::Answer{Ok(gzipped)}; });
  file.urls = {server.Url("/file.gz")};
  REQUIRE(DownloadFiles({file}, options_).ok());
  CHECK(files::ReadFile(path(), 100).value() == "abc");
  CHECK(files::ListDirectory(directory_ + "/sub").value() == std::vector<std::string>{"file"});
}

TEST_CASE_METHOD(Fixture, "A place that cannot be written to is its own error") {
  std::ofstream(std::string(std::getenv("TEST_TMPDIR")) + "/plain") << "x";
  RemoteFile file = File({"http://127.0.0.1:1/file"});
  file.path = std::string(std::getenv("TEST_TMPDIR")) + "/plain/file";
  const absl::Status status = DownloadFiles({file}, options_);
  CHECK_FALSE(status.ok());
  CHECK_FALSE(absl::IsUnavailable(status));
}

TEST_CASE_METHOD(Fixture, "The checksum of a file is that of sha256sum") {
  WritePartial("abc");  // FIPS 180-2, appendix B.1
  CHECK(Sha256OfFile(partial_path()).value() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(absl::IsNotFound(Sha256OfFile("/no/such/file").status()));
}

}  // namespace
}  // namespace official::data
