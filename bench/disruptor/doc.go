// Package disruptor measures go-disruptor, another disruptor for Go, with the work of the
// benchmarks of this project's package disruptor. It is a separate module, so that nothing
// else depends on go-disruptor. bench/disruptor.sh runs both in turns and prints one table. The
// program latency beside it measures latencies.
package disruptor
