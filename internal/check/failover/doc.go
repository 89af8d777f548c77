// Package failover tests what clients get while leaders end, clocks jump and nodes stop: real
// processes, under loads whose answers are checked for order. It has tests only.
//
// "make failover" measures how long nothing is answered, and writes a report; see
// docs/failover.md. The short run here judges no time.
package failover
