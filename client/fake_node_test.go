package client_test

import (
	"bufio"
	"net"
	"strings"
	"sync"
)

// node is one node of a cluster. Its behaviour can be changed at any time.
type node struct {
	cluster *cluster
	index   int
	addr    string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	work     sync.WaitGroup
	// reply, if set, answers in place of the node, unless it returns false. Its answer may
	// be empty, and it may end the connection by panicking with errHangUp.
	reply func(args []string) ([]byte, bool)
	// thawed is closed unless the node is frozen.
	thawed chan struct{}
	heard  []string // commands
	dials  int
}

type hangUp struct{ before []byte }

func (n *node) start() {
	listener, err := n.cluster.listen(n.addr)
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener, n.conns = listener, map[net.Conn]bool{}
	if n.addr == "" {
		n.addr = listener.Addr().String()
	}
	n.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			if n.conns == nil {
				n.mu.Unlock()
				_ = conn.Close()
				return
			}
			n.conns[conn] = true
			n.dials++
			n.work.Go(func() { n.serve(conn) })
			n.mu.Unlock()
		}
	})
}

// stop ends a node like the end of its process.
func (n *node) stop() {
	n.mu.Lock()
	if n.conns == nil {
		n.mu.Unlock()
		return
	}
	_ = n.listener.Close()
	n.mu.Unlock()
	n.hangUp(true)
	n.work.Wait()
}

// hangUp ends all connections.
func (n *node) hangUp(forever bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		_ = conn.Close()
	}
	if forever {
		n.conns = nil
	}
}

// freeze stops a node from answering, like SIGSTOP.
func (n *node) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.thawed = make(chan struct{})
}

func (n *node) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.thawed:
	default:
		close(n.thawed)
	}
}

func (n *node) replies(reply func(args []string) ([]byte, bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reply = reply
}

// count returns how many commands with a prefix the node has received.
func (n *node) count(prefix string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, command := range n.heard {
		if strings.HasPrefix(command, prefix) {
			count++
		}
	}
	return count
}

func (n *node) commands(prefix string) (list []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, command := range n.heard {
		if strings.HasPrefix(command, prefix) {
			list = append(list, command)
		}
	}
	return list
}

func (n *node) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	known := false
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		answer, ok := n.authenticate(args, &known), true
		if answer == nil {
			answer, ok = n.answer(args)
		}
		if len(answer) > 0 {
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
		if !ok {
			return
		}
	}
}

// answer returns the answer, and false to hang up after it.
func (n *node) answer(args []string) (answer []byte, ok bool) {
	n.mu.Lock()
	n.heard = append(n.heard, strings.Join(args, " "))
	reply, thawed := n.reply, n.thawed
	n.mu.Unlock()
	<-thawed
	defer func() {
		if end, hung := recover().(hangUp); hung {
			answer, ok = end.before, false
		}
	}()
	if reply != nil {
		if answer, ok := reply(args); ok {
			return answer, true
		}
	}
	return n.cluster.answer(n.index, args), true
}
