{{- define "stele.labels" -}}
app.kubernetes.io/name: stele
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stele.scheme" -}}
{{ if .Values.tls.secretName }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- define "stele.check" -}}
{{- if not .Values.cluster.etcd }}{{ fail "cluster.etcd: the servers need an etcd, such as etcd://etcd:2379/prod" }}{{ end }}
{{- if not .Values.data.url }}{{ fail "data.url: the servers need an object store, such as s3://bucket/prefix" }}{{ end }}
{{- if and (not .Values.tls.secretName) (not .Values.tls.insecure) }}
{{- fail "tls.secretName: name a secret with tls.crt, tls.key and ca.crt, or set tls.insecure if nobody else can listen to the network" }}
{{- end }}
{{- if and .Values.tls.clientAuth (not .Values.tls.secretName) }}{{ fail "tls.clientAuth: needs tls.secretName" }}{{ end }}
{{- end }}
