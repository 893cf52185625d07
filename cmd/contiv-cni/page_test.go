package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// The manual page has every field of the configuration, the defaults, and an example that the plugin accepts.
func TestManualPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/man/contiv-cni.8")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, configuration, _ := strings.Cut(page, ".SH CONFIGURATION")
	configuration, _, _ = strings.Cut(configuration, ".SH ")
	typ := reflect.TypeFor[config]()
	for i := range typ.NumField() {
		if name := typ.Field(i).Tag.Get("json"); name != "" && !strings.Contains(configuration, `\fB`+name+`\fP`) {
			t.Errorf("the page has no field %q", name)
		}
	}
	for _, word := range []string{protocol.DefaultSocket, protocol.DefaultSpool, ownIPAM, "portMappings", "bandwidth", "io.kubernetes.cri.pod-annotations", protocol.AnnotationInterface} {
		if !strings.Contains(configuration, word) {
			t.Errorf("the page does not mention %s", word)
		}
	}
	if !strings.Contains(page, "waits "+strings.TrimSuffix(patience.String(), "s")+" s") {
		t.Errorf("the page has another time than %s", patience)
	}
	example := regexp.MustCompile(`(?s)\.EX\n(.*?)\.EE`).FindStringSubmatch(page)
	if example == nil {
		t.Fatal("no example")
	}
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal([]byte(example[1]), &list); err != nil || len(list.Plugins) != 2 {
		t.Fatal(err)
	}
	c, err := newPlugin("", "").parseConfig(list.Plugins[0])
	if err != nil || !c.delegates() {
		t.Errorf("%+v, %v", c, err)
	}
}
