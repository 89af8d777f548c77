module github.com/isotone/isotone/bench/disruptor

go 1.26.0

require (
	github.com/isotone/isotone v0.0.0
	github.com/smarty/go-disruptor v0.5.0
	golang.org/x/sys v0.49.0
)

replace github.com/isotone/isotone => ../..
