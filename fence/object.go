package fence

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// objectMax bounds the value of an object, in bytes.
const objectMax = 16 << 20

// objectCell is an object of a store that speaks HTTP.
type objectCell struct {
	client *http.Client
	url    string
}

// Object returns the object at a URL as a [Cell] of at most 16 MiB: the store has to have strong ETags, and honor If-Match and If-None-Match: * of a PUT (RFC 9110, section 13.1), as Amazon S3 and
// MinIO do. Redirects are not followed, as they may turn a PUT into a GET. The transport of the client signs the requests, and adds headers, if the store wants that; it must not repeat a PUT, which
// would find its own write. To delete the object loses the fence.
func Object(client *http.Client, url string) Cell {
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &objectCell{&c, url}
}

// Load implements [Cell]; a version is an ETag.
func (o *objectCell) Load(ctx context.Context) (value []byte, version string, err error) {
	res, err := o.do(ctx, http.MethodGet, nil, "", "")
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return nil, "", nil
	}
	value, err = io.ReadAll(io.LimitReader(res.Body, objectMax+1))
	switch version = res.Header.Get("ETag"); {
	case err != nil:
		return nil, "", fmt.Errorf("GET %s: %w", o.url, err)
	case res.StatusCode != http.StatusOK:
		return nil, "", fmt.Errorf("GET %s: %s: %.200s", o.url, res.Status, value)
	case len(value) > objectMax:
		return nil, "", fmt.Errorf("GET %s: the object has more than %d bytes", o.url, objectMax)
	case res.Header.Get("Content-Encoding") != "":
		return nil, "", fmt.Errorf("GET %s: the object comes encoded as %q", o.url, res.Header.Get("Content-Encoding"))
	case res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0:
		return nil, "", fmt.Errorf("GET %s: the answer does not say how long it is, so it may be cut off", o.url)
	case version == "" || strings.HasPrefix(version, "W/"):
		return nil, "", fmt.Errorf("GET %s: the object has no strong ETag, but %q, so it cannot be replaced safely", o.url, version)
	}
	return value, version, nil
}

// Replace implements [Cell].
func (o *objectCell) Replace(ctx context.Context, version string, value []byte) error {
	if len(value) > objectMax {
		return fmt.Errorf("PUT %s: %d bytes, of at most %d", o.url, len(value), objectMax)
	}
	header := "If-Match"
	if version == "" {
		header, version = "If-None-Match", "*"
	}
	res, err := o.do(ctx, http.MethodPut, value, header, version)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	switch {
	// S3 answers 409 if another conditional write is under way, and 404 to If-Match if the object was deleted meanwhile.
	case res.StatusCode == http.StatusPreconditionFailed || res.StatusCode == http.StatusConflict || res.StatusCode == http.StatusNotFound && header == "If-Match":
		return fmt.Errorf("PUT %s: %w", o.url, ErrChanged)
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusNoContent:
		return fmt.Errorf("PUT %s: %s: %.200s", o.url, res.Status, text)
	}
	return err
}

func (o *objectCell) do(ctx context.Context, method string, body []byte, header, value string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, o.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != "" {
		req.Header.Set(header, value)
	}
	req.Header.Set("Accept-Encoding", "identity") // another encoding has another ETag
	req.Header.Set("Cache-Control", "no-cache")
	return o.client.Do(req)
}
