package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// browserTimeout bounds the wait for the program that opens a browser, which ends once it has passed
// the address on. One that takes longer is the browser itself.
const browserTimeout = 3 * time.Second

// browserCommand returns how a system opens a page in the browser of the user.
func browserCommand(goos, url string) []string {
	switch goos {
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler", url}
	case "darwin":
		return []string{"open", url}
	}
	return []string{"xdg-open", url}
}

// openBrowser opens a page in the browser of the user. The error says what to do instead.
func openBrowser(url string) error {
	command := browserCommand(runtime.GOOS, url)
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("--open: there is no %s here to open a browser with: open %s yourself", command[0], url)
	}
	cmd := exec.Command(path, command[1:]...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("--open: %s: %w: open %s yourself", command[0], err, url)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(browserTimeout):
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("--open: %s found no browser (%v): open %s yourself", command[0], exit, url)
	}
	return nil
}
