#include "utils/distribute/grpc/acceptor.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

using Reason = Refusals::Reason;

// A worker joins at the first one, and sends to each other one on two channels.
constexpr size_t kConnectionsOfWorker = 3;

uint64_t BytesReceived(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

bool HasEnded(int connection) {
  pollfd polled = {connection, POLLRDHUP, /*revents=*/0};
  return poll(&polled, 1, /*timeout=*/0) > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& address, size_t num_workers,
                                                           std::chrono::seconds peer_timeout, Refusals& refusals) {
  ASSIGN_OR_RETURN(std::vector<int> listeners, ListenAt(address));
  for (const int fd : listeners) {
    // As gRPC sets them where it listens itself. Connections inherit both.
    const int on = 1;
    const int timeout_ms = TimeoutMilliseconds(peer_timeout);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  }
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(listeners), num_workers, refusals));
}

Acceptor::Acceptor(std::vector<int> listeners, size_t num_workers, Refusals& refusals)
    : listeners_(std::move(listeners)),
      port_(PortOf(listeners_[0])),
      most_unproven_(kMostStrangers + kConnectionsOfWorker * num_workers),
      refusals_(refusals),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  OFFICIAL_CHECK(epoll_ >= 0 && stop_ >= 0) << "the system has no descriptors left";
}

Acceptor::~Acceptor() {
  Stop();
  while (!unproven_.empty()) Forget(unproven_.begin());
  for (const int fd : listeners_) close(fd);
  close(epoll_);
  close(stop_);
}

void Acceptor::Start(std::function<void(int fd)> take) {
  take_ = std::move(take);
  Watch(stop_, stop_, EPOLLIN);
  for (const int fd : listeners_) Watch(fd, fd, EPOLLIN);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void Acceptor::Watch(int fd, uint64_t id, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void Acceptor::Run() {
  for (;;) {
    epoll_event events[16];
    const int count = epoll_wait(epoll_, events, std::size(events), MillisecondsUntilCheck());
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == static_cast<uint64_t>(stop_)) return;
      if (std::find(listeners_.begin(), listeners_.end(), id) != listeners_.end()) {
        Accept(static_cast<int>(id));
      } else {
        TakeEnd(id);
      }
    }
    CloseExceeding();
  }
}

void Acceptor::Accept(int listener) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  // Where this process stood still, it may be that of a worker, which has tried again since: it does not count.
  if (fd >= 0 && HasEnded(fd)) {
    close(fd);
    return;
  }
  const int second = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (second < 0) {
    if (fd >= 0) close(fd);
    // Without descriptors the connection stays in the queue, and is there again at once.
    if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A worker proves itself in two round trips: who has been there longest has had its time.
    if (unproven_.size() >= most_unproven_) Refuse(unproven_.begin(), Reason::kTooMany);
    unproven_.push_back({next_id_, PeerOf(address), second, Clock::now() + kProveWithin});
    Watch(second, next_id_++, EPOLLRDHUP);
  }
  take_(fd);
}

void Acceptor::TakeEnd(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Place place =
      std::find_if(unproven_.begin(), unproven_.end(), [id](const Unproven& each) { return each.id == id; });
  if (place == unproven_.end()) return;
  Refuse(place, BytesReceived(place->fd) > kMostBytes ? Reason::kTooMuch : Reason::kGone);
}

void Acceptor::CloseExceeding() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clock::time_point now = Clock::now();
  for (Place place = unproven_.begin(); place != unproven_.end();) {
    const Place each = place++;
    if (each->deadline <= now) {
      Refuse(each, Reason::kTooSlow);
    } else if (BytesReceived(each->fd) > kMostBytes) {
      Refuse(each, Reason::kTooMuch);
    }
  }
}

int Acceptor::MillisecondsUntilCheck() {
  // Of bytes that gRPC has read already epoll tells nothing.
  constexpr int kCheckEvery = 20;
  const std::lock_guard<std::mutex> lock(mutex_);
  return unproven_.empty() ? -1 : kCheckEvery;
}

Acceptor::Place Acceptor::Find(const std::string& peer) {
  return std::find_if(unproven_.begin(), unproven_.end(), [&](const Unproven& each) { return each.peer == peer; });
}

void Acceptor::SetProven(const std::string& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Place place = Find(peer); place != unproven_.end()) Forget(place);
}

void Acceptor::CountRefusal(Reason reason, const std::string& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Place place = Find(peer); place != unproven_.end()) place->counted = true;
  refusals_.Add(reason, peer);
}

void Acceptor::Refuse(Place place, Reason reason) {
  if (!place->counted) refusals_.Add(reason, place->peer);
  shutdown(place->fd, SHUT_RDWR);
  Forget(place);
}

void Acceptor::Forget(Place place) {
  // The connection outlives this descriptor, so closing it is not enough.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, place->fd, nullptr);
  close(place->fd);
  unproven_.erase(place);
}

}  // namespace official::distribute
