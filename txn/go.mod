module github.com/isotone/isotone/txn

go 1.26.0

require github.com/isotone/isotone v0.0.0

replace github.com/isotone/isotone => ../
