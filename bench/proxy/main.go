// Proxy forwards requests with the reverse proxy of the standard library. It is one of the
// references of bench/proxy.sh.
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: proxy HOST:PORT URL")
	}
	target, err := url.Parse(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	handler := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
	log.Fatal(http.ListenAndServe(os.Args[1], handler))
}
