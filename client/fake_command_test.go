package client_test

import (
	"bufio"
	"fmt"
	"io"
)

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	var count int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &count); err != nil {
		return nil, err
	}
	args := make([]string, count)
	for i := range args {
		var length int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		text := make([]byte, length+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:length])
	}
	return args, nil
}
