// The interface of the id service, as Twitter's Snowflake had it. The exceptions are declared for
// programs that name them. Isotone never answers with one: code generated from a file that does
// not declare them would skip it, and return 0 in some languages. Every error is a
// TApplicationException, which every client raises.

namespace py snowflake
namespace java isotone.snowflake
namespace go snowflake

exception InvalidSystemClock {
  1: string message
}

exception InvalidUserAgentError {
  1: string message
}

service Snowflake {
  // The worker inside its datacenter.
  i64 get_worker_id() throws (1: InvalidSystemClock clock)

  // The clock of this node, in milliseconds since 1970.
  i64 get_timestamp() throws (1: InvalidSystemClock clock)

  // The next id. The user agent names the program that asks; it may be anything.
  i64 get_id(1: string useragent) throws (1: InvalidUserAgentError agent, 2: InvalidSystemClock clock)

  i64 get_datacenter_id() throws (1: InvalidSystemClock clock)
}
