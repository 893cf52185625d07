package ask

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text, wrong string // "": the text is right, and String returns it
	}{
		{"ns:dev -> ns:prod", ""},
		{"any -> outside:443", ""},
		{"pod:shop/web-0 -> service:shop/db:5432/TCP", ""},
		{"workload:shop/web -> pods:app=db,tier in (a, b):80,8000-8080/TCP", ""},
		{"namespaces:stage!=prod -> ns:shop,app=db", ""},
		{"cidr:2001:db8::/32 -> cidr:10.0.0.0/8:53/UDP", ""},
		{"outside -> cidr:::/0:UDP", ""},
		{"outside -> any:ICMP", ""},
		{"ns:dev ns:prod", "want LEFT -> RIGHT"},
		{"ns:a -> ns:b -> ns:c", "want LEFT -> RIGHT"},
		{"ns:dev:80 -> ns:prod", "only the right side has ports"},
		{"dev -> ns:prod", "a side is any, outside, or begins with"},
		{"ns:dev -> pod:web", "want pod:NAMESPACE/NAME"},
		{"ns:dev -> service:a/b/c", "want service:NAMESPACE/NAME"},
		{"ns: -> any", "want ns:NAME"},
		{"ns:app=web -> any", "want ns:NAME"},
		{"ns:dev, -> any", "want labels"},
		{"ns:dev -> any:", "nothing follows the last colon"},
		{"ns:dev -> cidr:10.0.0.0/8:", "nothing follows the last colon"},
		{"pods: -> any", "want labels"},
		{"pods:app==,= -> any", "app"},
		{"cidr:10.0.0.1 -> any", "want a prefix"},
		{"cidr:10.0.0.1/8 -> any", "host bits: want 10.0.0.0/8"},
		{"ns:dev -> any:0", `port "0"`},
		{"ns:dev -> any:80/HTTP", `port "80/HTTP"`},
		{"ns:dev -> any:90-80", `port "90-80"`},
		{"ns:dev -> any:8/ICMP", `port "8/ICMP"`},
		{"ns:dev -> any:70000", `port "70000"`},
	} {
		a, err := Parse(Never, tc.text)
		switch {
		case tc.wrong == "" && (err != nil || a.String() != tc.text):
			t.Errorf("%s: %v, %v", tc.text, a.String(), err)
		case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
			t.Errorf("%s: error %v, want %q", tc.text, err, tc.wrong)
		}
	}
}

func TestPortsOfASide(t *testing.T) {
	s, err := ParseSide("any:80,53/UDP,8000-8080/SCTP,ICMP")
	want := []Port{{6, 80, 80}, {17, 53, 53}, {132, 8000, 8080}, {1, 0, 65535}}
	if err != nil || len(s.Ports) != len(want) {
		t.Fatal(s, err)
	}
	for i := range want {
		if s.Ports[i] != want[i] {
			t.Errorf("port %d: %v, want %v", i, s.Ports[i], want[i])
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	const text = `
apiVersion: agent.contiv.io/v1alpha1
kind: PolicyAssertions
assertions:
- name: dev does not reach prod
  reason: test data must stay out
  never: ns:dev -> ns:prod
- name: web reaches the database
  reason: the shop needs it
  always: workload:shop/web -> service:shop/db:5432
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := ReadFile(path)
	if err != nil || len(list) != 2 || list[0].Kind != Never || list[1].Kind != Always || list[1].Name != "web reaches the database" || list[0].Reason != "test data must stay out" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestFilesWithMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "f.yaml:1: no assertions",
		"assertion: []\n":                  "f.yaml:1: field assertion is not known: want assertions",
		"kind: Pod\n":                      "f.yaml:1: field kind: want PolicyAssertions",
		"apiVersion: v1\nassertions: []\n": "f.yaml:1: field apiVersion: want agent.contiv.io/v1alpha1",
		"assertions: {}\n":                 "f.yaml:1: assertions: want a list",
		"assertions: []\n":                 "f.yaml:1: no assertions",
		"assertions:\n- x\n":               "f.yaml:2: assertion 1: want fields",
		"assertions:\n- {name: a, reason: b, nevr: any -> any}\n":                                                 "f.yaml:2: assertion 1 (a): field nevr is not known: want name, reason, and never or always",
		"assertions:\n- {name: a, reason: b}\n":                                                                   "f.yaml:2: assertion 1 (a): want either never or always",
		"assertions:\n- {name: a, reason: b, never: any -> any, always: any -> any}\n":                            "want either never or always",
		"assertions:\n- {name: a, never: any -> any}\n":                                                           "fields name and reason are required",
		"assertions:\n- {name: a, reason: b, never: any}\n":                                                       "f.yaml:2: assertion 1 (a): field never: \"any\": want LEFT -> RIGHT",
		"assertions:\n- {name: a, reason: '', never: any -> any}\n":                                               "assertion 1 (a): field reason: want a text",
		"assertions:\n- {name: a, name: a, reason: b, never: any -> any}\n":                                       "field name is given twice",
		"assertions:\n- {name: a, reason: b, never: any -> any}\n- {name: a, reason: b, never: any -> outside}\n": "f.yaml:3: assertion 2 (a): another assertion has this name",
		"a: 1\n---\nb: 2\n": "f.yaml: want one document",
		"{":                 "f.yaml: ",
	} {
		_, err := Read("f.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	_, err := Read("f.yaml", []byte("assertions:\n- {name: a, reason: b, x: 1}\n- {name: b, reason: b, y: 1}\n"))
	if err == nil || !strings.Contains(err.Error(), "field x") || !strings.Contains(err.Error(), "field y") {
		t.Errorf("the error names one mistake of two: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"ns:dev -> ns:prod", "any -> cidr:::/0:53/UDP", "pods:a in (b,c) -> service:a/b:1-2/TCP,ICMP"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := Parse(Always, text)
		if err != nil {
			return
		}
		b, err := Parse(Always, a.String())
		if err != nil || a.String() != b.String() {
			t.Errorf("%q is parsed, and its text %q gives %q, %v", text, a.String(), b.String(), err)
		}
	})
}
