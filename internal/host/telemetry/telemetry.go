// Package telemetry owns the format of log lines ([NewLogger]) and the Prometheus metrics
// ([Metrics]). It imports no other package of the module but internal/host/utc; callers pass plain
// numbers and words.
package telemetry
