// Package service tests what a node offers to its clients: real processes, asked by every
// protocol for timestamps, IDs, live documents and pages, also by clients that misbehave. It has
// tests only.
//
// "make hostile-storm" measures what 1,000 connections of hostile clients leave of the rate of
// another client; the run here is short and judges no rate.
package service
