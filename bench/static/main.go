// Static serves 16 bytes with net/http, over HTTP/1.1 and HTTP/2 without TLS. It is the
// reference of the case h2c of bench/loop.sh.
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: static HOST:PORT")
	}
	body := []byte("sixteen bytes..!")
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{
		Addr:      os.Args[1],
		Protocols: protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body)
		}),
	}
	log.Fatal(server.ListenAndServe())
}
