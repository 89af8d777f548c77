// Package snowflake compares the module's package snowflake with another generator of
// the same ids. It is a module of its own, so that the other is no dependency of
// anything else. "make bench-snowflake" runs it and prints medians.
package snowflake
