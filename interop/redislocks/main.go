// Command redislocks stands in for redis-server where the tests of libraries for locks start one. It reads a configuration from its standard input, of which it takes port and
// unixsocket, and passes connections on to the node at NODE, with a database of its own for each server: the port less FIRST_PORT, plus FIRST_DATABASE.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	settings := map[string]string{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		settings[key] = value
	}
	port, err := strconv.Atoi(settings["port"])
	first, firstErr := strconv.Atoi(os.Getenv("FIRST_PORT"))
	if err != nil || firstErr != nil {
		log.Fatal("redislocks: want a port in the configuration, and FIRST_PORT in the environment")
	}
	database, _ := strconv.Atoi(os.Getenv("FIRST_DATABASE")) // without: 0
	database += max(0, port-first)
	ended := make(chan error)
	listen := func(network, addr string) {
		ln, err := net.Listen(network, addr)
		for try := 0; err != nil && try < 100; try++ { // a connection of somebody else may have the port for a while
			time.Sleep(100 * time.Millisecond)
			ln, err = net.Listen(network, addr)
		}
		if err != nil {
			log.Fatal(err)
		}
		go func() { ended <- serve(ln, os.Getenv("NODE"), database) }()
	}
	if port != 0 { // as for Redis, 0 stands for none
		listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	if path := settings["unixsocket"]; path != "" {
		listen("unix", path)
	}
	go endWithParent(os.Getppid())
	fmt.Println("Ready to accept connections")
	log.Fatal(<-ended)
}

// endWithParent ends this process once the test that has started it is gone, also by a panic.
func endWithParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(1)
}

// serve passes on the connections that ln accepts.
func serve(ln net.Listener, node string, database int) error {
	for {
		client, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := relay(client, node, database); err != nil {
				log.Print(err)
			}
		}()
	}
}

// relay passes on a connection, in a database.
func relay(client net.Conn, node string, database int) error {
	defer client.Close()
	server, err := net.Dial("tcp", node)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := fmt.Fprintf(server, "SELECT %d\r\n", database); err != nil {
		return err
	}
	answer := make([]byte, len("+OK\r\n"))
	if _, err := io.ReadFull(server, answer); err != nil || string(answer) != "+OK\r\n" {
		return fmt.Errorf("SELECT %d is answered by %q: %w", database, answer, err)
	}
	go func() {
		_, _ = io.Copy(server, client) // ends with the connection
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server) // the same
	return nil
}
