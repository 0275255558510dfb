// Starts gRPC as all of our processes use it.
#pragma once

namespace official::distribute {

// gRPC's own messages go nowhere, since we tell in our own words, unless GRPC_VERBOSITY asks for them. Names are
// looked up as everywhere in a program, by the system, unless GRPC_DNS_RESOLVER says otherwise: gRPC's own resolver
// does not know those that only a module of /etc/nsswitch.conf finds. gRPC stays until the process ends: else it would
// end with the last connection, and wait for a thread of its own that, once a socket was full, may sleep for ten
// seconds.
void StartQuietGrpc();

}  // namespace official::distribute
