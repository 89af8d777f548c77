module github.com/isotone/isotone

go 1.26
