// Package poll asks servers that tests start.
package poll

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// Until asks every millisecond until is returns true. The test fails after 30 s.
func Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("never: ", what)
		}
	}
}

// Get requests a URL on a new connection and reads JSON of the answer, if it has any. The code is 0 without an answer.
func Get(url string, into any) (code int) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		_ = json.Unmarshal(text, into)
	}
	return resp.StatusCode
}
