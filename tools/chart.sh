#!/bin/bash
# Copies the manifests that the chart shares with the folders of deploy/. They are copies, because helm warns about each symbolic link of a chart, and
# kustomize reads no file above its folder. A test compares them.
set -euo pipefail
cd "$(dirname "$0")/../deploy"
while read -r file source; do
  cp "$source" "helm/contiv-agent/files/$file"
done <<EOT
alerts.yaml monitoring/alerts.yaml
calico-typha.yaml calico-typha/endpoints.yaml
closed.yaml closed/policy.yaml
cni-role.yaml cni/role.yaml
fanout-server.yaml fanout-server/roles.yaml
fanout.yaml fanout/endpoints.yaml
felix-driver.yaml felix-driver/roles.yaml
monitoring.yaml monitoring/monitor.yaml
reader.yaml reader/role.yaml
reporting.yaml reporting/roles.yaml
standalone.yaml other-cni/binding.yaml
startup.conf vpp/startup.conf
EOT
