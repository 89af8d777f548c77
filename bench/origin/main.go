// Origin is the slow origin of bench/live.sh: a JSON document of 4,195 bytes that changes
// once a second, and takes a while to answer.
//
//	origin HOST:PORT [DELAY]      DELAY is 50ms by default
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// documentBytes is the size of every document.
const documentBytes = 4195

// document returns the document of a second.
func document(second int64) string {
	head := fmt.Sprintf(`{"counted":%d,"votes":"`, second)
	return head + strings.Repeat("x", documentBytes-len(head)-2) + `"}`
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: origin HOST:PORT [DELAY]")
	}
	delay := 50 * time.Millisecond
	if len(os.Args) > 2 {
		var err error
		if delay, err = time.ParseDuration(os.Args[2]); err != nil {
			log.Fatalf("DELAY: %v", err)
		}
	}
	var requests atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /doc.json", func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		time.Sleep(delay)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "max-age=1")
		w.Header().Set("Content-Length", strconv.Itoa(documentBytes))
		_, _ = w.Write([]byte(document(time.Now().Unix())))
	})
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, requests.Load()) })
	server := &http.Server{Addr: os.Args[1], Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
