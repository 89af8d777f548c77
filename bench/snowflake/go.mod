module github.com/isotone/isotone/bench/snowflake

go 1.26.0

require (
	github.com/bwmarrin/snowflake v0.3.0
	github.com/isotone/isotone v0.0.0
)

replace github.com/isotone/isotone => ../..
