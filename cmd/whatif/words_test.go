package whatif

import (
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/trace"
)

func TestWords(t *testing.T) {
	ask := func(s trace.Step) trace.Answer {
		if strings.HasPrefix(s.To, "service:prod/db") {
			return trace.Answer{Verdict: trace.Delivered}
		}
		return trace.Answer{Error: "no such Service"}
	}
	for words, want := range map[string]string{
		"prod/web prod/db:5432":             `{"from":"pod:prod/web","to":"service:prod/db:5432","protocol":"TCP"}`,
		"prod/web prod/db:53 udp":           `{"from":"pod:prod/web","to":"service:prod/db:53","protocol":"UDP"}`,
		"prod/web prod/db:53/UDP":           `{"from":"pod:prod/web","to":"service:prod/db:53","protocol":"UDP"}`,
		"prod/web prod/web-1:80":            `{"from":"pod:prod/web","to":"pod:prod/web-1:80","protocol":"TCP"}`,
		"prod/web prod/web-1":               `{"from":"pod:prod/web","to":"pod:prod/web-1","protocol":"ICMP"}`,
		"prod/web pod:prod/db:1":            `{"from":"pod:prod/web","to":"pod:prod/db:1","protocol":"TCP"}`,
		"node:n1 10.0.0.1:80":               `{"from":"node:n1","to":"10.0.0.1:80","protocol":"TCP"}`,
		"node:n1 10.0.0.1":                  `{"from":"node:n1","to":"10.0.0.1","protocol":"ICMP"}`,
		"external:192.0.2.1@n1 [fd00::1]:1": `{"from":"external:192.0.2.1@n1","to":"[fd00::1]:1","protocol":"TCP"}`,
		"node:n1 fd00::1":                   `{"from":"node:n1","to":"fd00::1","protocol":"ICMP"}`,
		"prod/web":                          "1 words: want FROM TO [PROTOCOL], such as prod/web-0 prod/db:5432",
		"prod/web prod/db:1 QUIC":           "QUIC: must be TCP, UDP, SCTP or ICMP",
		"prod/web prod/db:1/udp tcp":        "prod/db:1/udp and tcp: two protocols",
	} {
		got, err := Words(strings.Fields(words), ask)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
