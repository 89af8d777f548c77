// The interface of the id service, as Twitter's Snowflake had it. Exceptions are declared
// here, so clients made from this file get them as such; clients made from a file that does
// not declare them work alike, but see only that there is no result.

namespace py snowflake
namespace java isotone.snowflake
namespace go snowflake

// The clock of the machine that makes ids cannot be trusted: it went back, or is outside of
// what an id can hold. Try again later, or elsewhere.
exception InvalidSystemClock {
  1: string message
}

// A user agent is a letter, then letters, digits and "-", 64 in all.
exception InvalidUserAgentError {
  1: string message
}

service Snowflake {
  // The worker inside its datacenter.
  i64 get_worker_id() throws (1: InvalidSystemClock clock)

  // The clock of this node, in milliseconds since 1970.
  i64 get_timestamp() throws (1: InvalidSystemClock clock)

  // The next id. The user agent names the program that asks; it is counted.
  i64 get_id(1: string useragent) throws (1: InvalidUserAgentError agent, 2: InvalidSystemClock clock)

  i64 get_datacenter_id() throws (1: InvalidSystemClock clock)
}
