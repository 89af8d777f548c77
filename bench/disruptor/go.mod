module github.com/isotone/isotone/bench/disruptor

go 1.26.0

require github.com/smarty/go-disruptor v0.5.0
