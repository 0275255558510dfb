// Starts gRPC as all of our processes use it.
#pragma once

namespace official::distribute {

// gRPC's own messages go nowhere, since we tell in our own words, unless GRPC_VERBOSITY asks for them. gRPC stays until
// the process ends: else it would end with the last connection, and wait for a thread of its own that, once a socket
// was full, may sleep for ten seconds.
void StartQuietGrpc();

}  // namespace official::distribute
