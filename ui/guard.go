package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// policyOfContent lets a page load its style, script and picture, connect to its server, and nothing else.
const policyOfContent = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// mostBody bounds the body of a request: a policy.
const mostBody = 1 << 20

// guard lets requests pass that name this machine, come from its own pages, read only, and have the key. A page of another site cannot send such
// requests, even if its name resolves to 127.0.0.1; neither can another user of this machine.
func (s *Server) guard(next http.Handler) http.Handler {
	sum := sha256.Sum256([]byte(s.Key))
	cookie := "contiv-ui-" + hex.EncodeToString(sum[:4]) // cookies of one host are shared by its ports
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header() // with the referrer policy no-referrer a browser would send no origin with the page's own form
		for name, value := range map[string]string{
			"Content-Security-Policy": policyOfContent, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			h.Set(name, value)
		}
		if why := forbidden(r); why != "" {
			http.Error(w, why, http.StatusForbidden)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && (r.Method != http.MethodPost || r.URL.Path != "/whatif") {
			http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
			return
		}
		if r.Method != http.MethodPost && s.knowsKey(r.URL.Query().Get("key")) {
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: s.Key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			q := r.URL.Query()
			q.Del("key")
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: q.Encode()} // "//host" would be another host
			http.Redirect(w, r, to.RequestURI(), http.StatusSeeOther)
			return
		}
		if c, err := r.Cookie(cookie); err != nil || !s.knowsKey(c.Value) {
			http.Error(w, "open the address that contiv-agent ui has printed: it has the key", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) knowsKey(key string) bool {
	return key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(s.Key)) == 1
}

// forbidden returns why a request cannot come from a page of this server; "": it can.
func forbidden(r *http.Request) string {
	if !onThisMachine(r.Host) {
		return "this page is only for the machine that it runs on: use localhost or 127.0.0.1"
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return "a page of another site sent this request"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return "a page of another site sent this request"
		}
	}
	return ""
}

// onThisMachine reports whether the host of a request, with or without a port, is loopback. A forwarded port may differ from the server's.
func onThisMachine(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if len(name) > 2 && name[0] == '[' && name[len(name)-1] == ']' {
		name = name[1 : len(name)-1]
	}
	return httpserver.LoopbackHost(name)
}
