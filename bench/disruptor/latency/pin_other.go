//go:build !linux

package main

import "errors"

var errPin = errors.New("pinning needs Linux")

func cpus() ([]int, error) { return nil, errPin }

func pin(int) error { return errPin }
