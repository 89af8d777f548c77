// Package telemetry owns what a node tells about itself: the form of its log
// lines ([NewLogger]) and its Prometheus metrics ([Metrics]). It knows no other
// package of the module; the node and the fronts tell it what happened in plain
// numbers and words.
package telemetry
