package mongo_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/isotone/isotone/internal/check/ports"
)

// buildTimeout bounds the build of FerretDB, which takes minutes unless its packages are in Go's cache.
const buildTimeout = 8 * time.Minute

// ferret is a server of MongoDB's protocol with a database on disk.
type ferret struct {
	t    *testing.T
	path string
	dir  string
	addr string
	cmd  *exec.Cmd
	stop func()
}

// startFerret builds and starts FerretDB. Without its module it skips the test; with CI=true the test fails.
func startFerret(t *testing.T) *ferret {
	t.Helper()
	if testing.Short() {
		t.Skip("FerretDB takes minutes to build for the first time: not with -short")
	}
	f := &ferret{t: t, dir: t.TempDir(), path: filepath.Join(t.TempDir(), "ferretdb")}
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	download := exec.CommandContext(ctx, "go", "mod", "download")
	download.Dir = "../ferretdb"
	if out, err := download.CombinedOutput(); err != nil {
		why := fmt.Sprintf("FerretDB is not in the module cache, and not to be had from the module proxy: %v\n%s", err, out)
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", f.path, ".")
	build.Dir = "../ferretdb"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build in ferretdb: %v\n%s", err, out)
	}
	addrs, err := ports.Addrs(1)
	if err != nil {
		t.Fatal(err)
	}
	f.addr = addrs[0]
	f.start()
	t.Cleanup(func() { f.kill() })
	return f
}

func (f *ferret) start() {
	f.t.Helper()
	f.cmd = exec.Command(f.path, f.addr, f.dir)
	f.cmd.Dir, f.cmd.Stderr = f.dir, os.Stderr
	in, err := f.cmd.StdinPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.stop = func() { _ = in.Close() }
	f.with(func(ctx context.Context, c *mongo.Collection) error { return c.Database().Client().Ping(ctx, nil) })
}

func (f *ferret) kill() {
	if f.cmd == nil {
		return
	}
	_ = f.cmd.Process.Kill()
	f.stop()
	_ = f.cmd.Wait()
	f.cmd = nil
}

// with does something with the collection.
func (f *ferret) with(do func(context.Context, *mongo.Collection) error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + f.addr))
	if err != nil {
		f.t.Fatal(err)
	}
	err = do(ctx, c.Database("shop").Collection("live"))
	if err := errors.Join(err, c.Disconnect(ctx)); err != nil {
		f.t.Fatal(err)
	}
}

// fake is a server that answers commands as a function says: nil means never. It answers hello by
// itself, as a server that stands alone, or with hello.
type fake struct {
	addr  string
	dials atomic.Int64
}

func startFake(t *testing.T, hello bson.D, answer func(command bson.Raw) bson.D) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: ln.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f.dials.Add(1)
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			served.Go(func() {
				defer stop()
				defer c.Close()
				for serveOne(c, hello, answer) == nil {
				}
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = ln.Close(); served.Wait() })
	return f
}

// serveOne answers one message: OP_QUERY, which has the first hello, or OP_MSG.
//
// Source: "MongoDB Wire Protocol".
func serveOne(c net.Conn, hello bson.D, answer func(bson.Raw) bson.D) error {
	head := make([]byte, 16)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	body := make([]byte, min(1<<20, binary.LittleEndian.Uint32(head)-16))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	const opReply, opQuery, opMsg = 1, 2004, 2013
	kind := binary.LittleEndian.Uint32(head[12:])
	var command bson.Raw
	if kind == opQuery {
		name := 4
		for body[name] != 0 {
			name++
		}
		command = bson.Raw(body[name+9:])
	} else {
		command = bson.Raw(body[5:])
	}
	command = command[:binary.LittleEndian.Uint32(command)]
	first, err := command.IndexErr(0)
	if err != nil {
		return err
	}
	var says bson.D
	switch first.Key() {
	case "hello", "isMaster", "ismaster":
		says = append(bson.D{
			{Key: "ok", Value: 1}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "minWireVersion", Value: 0},
			{Key: "maxWireVersion", Value: 21}, {Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48 << 20},
			{Key: "saslSupportedMechs", Value: bson.A{"SCRAM-SHA-256"}},
		}, hello...)
	default:
		says = answer(command)
	}
	if says == nil {
		_, err := io.Copy(io.Discard, c) // until the client gives up
		return errors.Join(err, io.EOF)
	}
	raw, err := bson.Marshal(says)
	if err != nil {
		return err
	}
	var reply []byte
	if kind == opQuery {
		reply = append(make([]byte, 16), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0)
		kind = opReply
	} else {
		reply = append(make([]byte, 16), 0, 0, 0, 0, 0)
		kind = opMsg
	}
	reply = append(reply, raw...)
	binary.LittleEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:12], head[4:8])
	binary.LittleEndian.PutUint32(reply[12:], kind)
	_, err = c.Write(reply)
	return err
}
