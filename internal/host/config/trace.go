package config

import (
	"errors"
	"net/url"
)

// tracePath is where OpenTelemetry collectors take traces, by the specification of OTLP.
const tracePath = "/v1/traces"

// ParseTraceEndpoint returns the URL of a collector with its path, /v1/traces if it has none.
func ParseTraceEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" || u.User != nil {
		return "", errors.New("want a URL such as http://localhost:4318, without a user name")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracePath
	}
	return u.String(), nil
}

func (p *parser) traceEndpoint(text string) string {
	if text == "" {
		return ""
	}
	endpoint, err := ParseTraceEndpoint(text)
	if err != nil {
		p.faults.add("trace-endpoint", text, err.Error())
	}
	return endpoint
}
