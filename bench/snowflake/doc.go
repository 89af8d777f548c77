// Package snowflake compares the module's package snowflake with another generator of
// the same IDs. It is a separate module, so that nothing else depends on the other
// generator. "make bench-snowflake" runs it and prints medians.
package snowflake
