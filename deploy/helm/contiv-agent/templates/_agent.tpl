{{- define "contiv-agent.agent" -}}
{{- $behind := or (eq .Values.mode "fanout") (eq .Values.mode "calico-typha") -}}
{{- $cni := include "contiv-agent.cni" . | default "false" -}}
- name: agent
  image: {{ include "contiv-agent.image" .Values.images.agent }}
  {{- with .Values.images.agent.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: ["contiv-agent"]
  args:
    - run
    {{- if $behind }}
    - --source=typha
    {{- end }}
    - --in-cluster
    - --api-server=$(API_SERVER)
    {{- if eq .Values.mode "fanout" }}
    - --typha-service={{ .Release.Namespace }}/contiv-fanout
    {{- else if eq .Values.mode "calico-typha" }}
    - --typha-service={{ .Values.typha.service }}
    {{- end }}
    {{- if $behind }}
    - --typha-ca=/etc/contiv-typha/ca.crt
    - --typha-cert=/etc/contiv-typha/tls.crt
    - --typha-key=/etc/contiv-typha/tls.key
    - --typha-cn={{ eq .Values.mode "fanout" | ternary "contiv-fanout" .Values.typha.cn }}
    {{- end }}
    {{- if eq .Values.mode "calico-typha" }}
    - --service-cidr=$(SERVICE_CIDR)
    {{- end }}
    - --vpp-socket=/run/vpp/api.sock
    - --host-address=$(HOST_ADDRESS)
    - --cni=$(CNI)
    - --clean-when-deleted=$(CLEAN_WHEN_DELETED)
    - --listen=:9191
    - --lease-namespace={{ .Release.Namespace }}
    - --log-format=json
    {{- with .Values.agent.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    - name: API_SERVER
      valueFrom:
        configMapKeyRef:
          name: contiv-agent
          key: api-server
    - name: HOST_ADDRESS
      valueFrom:
        configMapKeyRef:
          name: contiv-agent
          key: host-address
    - name: CNI
      value: {{ $cni | quote }}
    - name: CLEAN_WHEN_DELETED
      value: {{ eq $cni "true" | ternary (printf "%s/contiv-vswitch/contiv-agent" .Release.Namespace) "" | quote }}
    {{- if eq .Values.mode "calico-typha" }}
    - name: SERVICE_CIDR
      valueFrom:
        configMapKeyRef:
          name: contiv-agent
          key: service-cidr
    {{- end }}
  ports:
    - name: agent-metrics
      containerPort: 9191
  startupProbe:
    httpGet:
      path: /livez
      port: agent-metrics
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet:
      path: /livez
      port: agent-metrics
    periodSeconds: 10
    timeoutSeconds: 5
  readinessProbe:
    httpGet:
      path: /readyz
      port: agent-metrics
    periodSeconds: 5
    timeoutSeconds: 5
  securityContext:
    # VPP's socket is root's.
    runAsUser: 0
    {{- include "contiv-agent.confined" . | nindent 4 }}
      {{- if eq $cni "true" }}
      # Links, addresses, routes and nftables of the node and of pods; SYS_ADMIN to enter the network namespaces of pods, NET_RAW to
      # send a first frame from there.
      add: ["NET_ADMIN", "NET_RAW", "SYS_ADMIN"]
      {{- end }}
  resources:
    {{- toYaml .Values.agent.resources | nindent 4 }}
  volumeMounts:
    - name: run-vpp
      mountPath: /run/vpp
    - name: run-agent
      mountPath: /run/contiv-agent
    # VPP writes captures of packets to its /tmp; the agent reads and removes them.
    - name: vpp-tmp
      mountPath: /tmp
    {{- if eq $cni "true" }}
    - name: cni-conf
      mountPath: /etc/cni/net.d
    - name: cni-bin
      mountPath: /opt/cni/bin
    - name: cni-state
      mountPath: /var/lib/contiv-agent
    - name: netns
      mountPath: {{ .Values.cni.netnsDir }}
      # Namespaces of pods that the runtime makes later are mounts on the node.
      mountPropagation: HostToContainer
    - name: rcu-expedited
      mountPath: /sys/kernel/rcu_expedited
    # Settings of the NIC that VPP gets or had (--node-nic): a container's own /proc/sys is read-only.
    - name: proc-sys-net
      mountPath: /host/proc/sys/net
    {{- end }}
    {{- if $behind }}
    - name: typha-tls
      mountPath: /etc/contiv-typha
      readOnly: true
    {{- end }}
{{- end -}}
